package core.type_test

import data.core.type as policy

workload_type(owner, tty, labels) := type if {
	type := policy.type with input as {
		"workload": {"owner": owner, "hasTTY": tty},
		"object": {"metadata": {"labels": labels}},
	}
}

test_train if {
	every group, kind in {"batch": "Job", "kubeflow.org": "PyTorchJob", "ray.io": "RayJob", "jobset.x-k8s.io": "JobSet", "apps": "StatefulSet"} {
		workload_type({"group": group, "kind": kind}, true, {}) == "train"
	}
	workload_type({"group": "", "kind": ""}, false, {}) == "train"
}

test_interactive if {
	workload_type({"group": "", "kind": ""}, true, {}) == "interactive"
	workload_type({"group": "kubeflow.org", "kind": "Notebook"}, false, {}) == "interactive"
	workload_type({"group": "apps", "kind": "StatefulSet"}, false, {"notebook-name": "mine"}) == "interactive"
	workload_type({"group": "", "kind": ""}, false, {"app": "jupyterhub", "component": "singleuser-server"}) == "interactive"
	workload_type({"group": "", "kind": ""}, false, {"app": "jupyterhub", "component": "hub"}) == "train"
}

test_inference if {
	every kind in ["Deployment", "ReplicaSet"] {
		workload_type({"group": "apps", "kind": kind}, true, {}) == "inference"
	}
	workload_type({"group": "serving.knative.dev", "kind": "Service"}, false, {}) == "inference"
	workload_type({"group": "ray.io", "kind": "RayCluster"}, false, {"ray.io/originated-from-crd": "RayService"}) == "inference"
}
