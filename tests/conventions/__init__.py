"""What a subject runs is what its program says: literals, layouts, masks, and every convention."""
