"""The tongue: protobuf messages to core values and back, keeping the original bytes of what is signed."""
