"""What the history does where its streams have gaps: epochs, rows that are published again, accounts, quotas."""
