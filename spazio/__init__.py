"""The command line and the composition root: the only package that imports all others."""

INTERRUPTED = 130  # exit status after Ctrl-C, as of a shell: 128 and the number of SIGINT
