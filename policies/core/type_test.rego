package core.type_test

import data.core.type as policy

said(owner, tty, labels) := type if {
	type := policy.type with input as {
		"workload": {"owner": owner, "hasTTY": tty},
		"object": {"metadata": {"labels": labels}},
	}
}

test_train if {
	every group, kind in {"batch": "Job", "kubeflow.org": "PyTorchJob", "ray.io": "RayJob", "jobset.x-k8s.io": "JobSet", "apps": "StatefulSet"} {
		said({"group": group, "kind": kind}, true, {}) == "train"
	}
	said({"group": "", "kind": ""}, false, {}) == "train"
}

test_interactive if {
	said({"group": "", "kind": ""}, true, {}) == "interactive"
	said({"group": "kubeflow.org", "kind": "Notebook"}, false, {}) == "interactive"
	said({"group": "apps", "kind": "StatefulSet"}, false, {"notebook-name": "mine"}) == "interactive"
	said({"group": "", "kind": ""}, false, {"app": "jupyterhub", "component": "singleuser-server"}) == "interactive"
	said({"group": "", "kind": ""}, false, {"app": "jupyterhub", "component": "hub"}) == "train"
}

test_inference if {
	every kind in ["Deployment", "ReplicaSet"] {
		said({"group": "apps", "kind": kind}, true, {}) == "inference"
	}
	said({"group": "serving.knative.dev", "kind": "Service"}, false, {}) == "inference"
	said({"group": "ray.io", "kind": "RayCluster"}, false, {"ray.io/originated-from-crd": "RayService"}) == "inference"
}
