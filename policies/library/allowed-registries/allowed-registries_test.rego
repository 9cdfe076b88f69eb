package allowed_registries_test

import data.allowed_registries

parameters := {"registries": ["registry.example.org", "nvcr.io/nvidia/", "docker.io/library"]}

denials(image) := found if {
	found := allowed_registries.deny with input.object as {"spec": {"initContainers": [{"name": "main", "image": image}]}}
		with input.parameters as parameters
}

test_allowed if {
	every image in [
		"registry.example.org/a:1", "nvcr.io/nvidia/pytorch:25.01-py3", "busybox", "busybox:1.37",
		"docker.io/library/busybox",
	] {
		count(denials(image)) == 0
	}
}

test_denied if {
	every image in [
		"registry.example.org.evil.org/a", "nvcr.io/nvidia-other/a", "jupyter/base-notebook", "localhost/a",
		"registry.example.org:5000/a", "10.0.0.1/a",
	] {
		count(denials(image)) == 1
	}
}

test_members_see_the_registries if {
	[object] := [object |
		some object in allowed_registries.objects with input.object as {"kind": "Project"} with input.parameters as parameters
	]
	object.kind == "ProjectParameters"
	object.spec.images == parameters.registries
}

test_nothing_for_departments if {
	objects := allowed_registries.objects with input.object as {"kind": "Department"} with input.parameters as parameters
	count(objects) == 0
}
