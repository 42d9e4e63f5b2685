"""The service: the verbs, one module a noun. Each loads, decides, and makes one store call."""
