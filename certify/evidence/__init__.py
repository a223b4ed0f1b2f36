"""Evidence: certificates, counter-examples, reports, and what reads them back."""
