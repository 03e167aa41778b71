"""Folders of pictures: which files, what becomes of each, several at a time."""
