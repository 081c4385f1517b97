"""The mains of the runtime's processes: `python -m mstar.node conductor|worker …`."""
