"""What everything stands on: errors, files of ours and of others, documents, units, kinds."""
