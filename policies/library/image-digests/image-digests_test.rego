package image_digests_test

import data.image_digests

digest := "@sha256:7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa"

denials(image) := found if {
	found := image_digests.deny with input.object as {"spec": {"containers": [{"name": "main", "image": image}]}}
}

test_digest if {
	count(denials(concat("", ["busybox", digest]))) == 0
	count(denials(concat("", ["registry.example.org:5000/a:1", digest]))) == 0
}

test_no_digest if {
	every image in ["busybox", "busybox:1.37", "busybox@sha256:7cc4", concat("", ["busybox", digest, "x"])] {
		count(denials(image)) == 1
	}
}
