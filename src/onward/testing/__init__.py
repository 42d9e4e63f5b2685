"""What Onward tests itself with, for those who build on it: contract suites, a clock that stands still, ids that count."""
