"""Pictures in files: reads them, and writes them in other formats."""
