package maximum_gpus_test

import data.maximum_gpus

parameters := {"limits": [{"gpus": 1}, {"types": ["train"], "gpus": 2}, {"types": ["train"], "groups": ["hpc"], "gpus": 8}]}

denials(type, gpus, user, object) := found if {
	found := maximum_gpus.deny with input.workload as {"type": type, "gpus": gpus}
		with input.review as {"userInfo": user}
		with input.object as object
		with input.parameters as parameters
}

anna := {"username": "anna", "groups": ["users"]}

pod := {"kind": "Pod", "spec": {}}

test_by_type if {
	count(denials("interactive", 1, anna, pod)) == 0
	count(denials("interactive", 2, anna, pod)) == 1
	count(denials("train", 2, anna, pod)) == 0
	count(denials("train", 2.5, anna, pod)) == 1
}

test_by_group if {
	count(denials("train", 8, {"username": "anna", "groups": ["hpc"]}, pod)) == 0
	count(denials("train", 9, {"username": "anna", "groups": ["hpc"]}, pod)) == 1
	count(denials("train", 8, {"username": "anna"}, pod)) == 1
}

test_pods_of_controllers_have_the_largest_limit if {
	count(denials("train", 8, {"username": "system:serviceaccount:kube-system:job-controller"}, pod)) == 0
	count(denials("train", 9, {"username": "system:serviceaccount:kube-system:job-controller"}, pod)) == 1
}

test_jobs_count_with_their_parallelism if {
	count(denials("train", 1, anna, {"kind": "Job", "spec": {"parallelism": 3}})) == 1
	count(denials("train", 1, anna, {"kind": "Job", "spec": {"parallelism": 2}})) == 0
	count(denials("train", 1, anna, {"kind": "Job", "spec": {}})) == 0
}
