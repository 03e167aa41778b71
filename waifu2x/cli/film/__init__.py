"""What `waifu2x video` says and asks."""
