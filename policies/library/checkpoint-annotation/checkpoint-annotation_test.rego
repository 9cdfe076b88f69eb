package checkpoint_annotation_test

import data.checkpoint_annotation

gpu := {"type": "train", "form": "Whole"}

denials(pod, own, limit) := found if {
	found := checkpoint_annotation.deny with input.object as pod
		with input.workload as object.union(gpu, {"maxRuntimeSeconds": own})
		with input.project as {"limits": {"train": {"maxRuntimeSeconds": limit}}}
		with input.parameters as {"annotation": "a", "hours": 1}
}

test_long if {
	count(denials({}, 0, 0)) == 1
	count(denials({}, 0, 3601)) == 1
	count(denials({"metadata": {"annotations": {"a": ""}}}, 7200, 7200)) == 1
}

test_short if {
	count(denials({}, 3600, 0)) == 0
	count(denials({}, 0, 3600)) == 0
	count(denials({}, 7200, 3600)) == 0
}

test_annotated if count(denials({"metadata": {"annotations": {"a": "s3://b"}}}, 0, 0)) == 0
