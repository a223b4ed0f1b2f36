"""Reports: each listens to the campaign's events, or renders the certificate that ends it."""
