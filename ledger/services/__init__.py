"""The hands: each service drives one machine of the core; siblings do not import each other."""
