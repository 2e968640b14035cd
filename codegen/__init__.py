"""From a plan to running code: submodels, programs, bundles and their verification."""
