package sluice.lib.kueue_test

import data.sluice.lib.kueue

test_suspended_by_owner if {
	every kind in ["Job", "CronJob", "Pod"] {
		owner := {"group": "batch", "kind": kind}
		{true | kueue.suspended_by_owner with input.workload.owner as owner} == {true | kind == "Job"}
	}
	kueue.suspended_by_owner with input.workload.owner as {"group": "kubeflow.org", "kind": "PyTorchJob"}
	not kueue.suspended_by_owner with input.workload.owner as {"group": "apps", "kind": "ReplicaSet"}
}
