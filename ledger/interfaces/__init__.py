"""The doors: translate, authenticate, call, translate back."""
