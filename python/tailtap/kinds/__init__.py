"""What every seam shares: kinds by name, doctor's checks, findings before anything is made."""
