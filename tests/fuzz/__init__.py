"""Every reader against files that nobody would write on purpose: hypothesis in CI, a fuzzer for as long as you like."""
