"""Words of a diagnosis: what categories and messages mean, quotations, remarks, Chinese. Pure."""
