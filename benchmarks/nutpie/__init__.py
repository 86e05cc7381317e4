"""NUTS as typed and nutpie on eight models: effective draws a gradient, with and without warm-up, and seconds, in turn."""
