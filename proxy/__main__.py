"""python -m proxy: the console command."""

from proxy.cli import main

main()
