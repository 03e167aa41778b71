"""The messages, options and work of `waifu2x video`."""
