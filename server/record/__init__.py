"""Sessions kept as files, and run again from them (`docs/record.md`)."""
