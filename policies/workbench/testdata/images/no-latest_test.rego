package no_latest_test

import data.no_latest

pod(image) := {"spec": {"containers": [{"name": "main", "image": image}]}}

test_latest_is_denied if {
	count(no_latest.deny) == 1 with input.object as pod("registry.example.org/a:latest") with input.parameters as {"registries": []}
}

test_version_is_allowed if {
	count(no_latest.deny) == 0 with input.object as pod("registry.example.org/a:1") with input.parameters as {"registries": []}
}
