package allowed_data_sources_test

import data.allowed_data_sources

denials(volume) := found if {
	found := allowed_data_sources.deny with input.object as {"spec": {"volumes": [object.union({"name": "v"}, volume)]}}
		with input.parameters as {
			"types": ["emptyDir"], "nfs": [{"server": "nfs", "path": "/data/"}, {"server": "home", "path": "/"}],
			"csiDrivers": ["a.csi"],
		}
}

test_allowed if {
	every volume in [
		{"emptyDir": {}}, {"nfs": {"server": "nfs", "path": "/data"}}, {"nfs": {"server": "nfs", "path": "/data/a"}},
		{"nfs": {"server": "home", "path": "/anna"}}, {"csi": {"driver": "a.csi"}},
	] {
		count(denials(volume)) == 0
	}
}

test_denied if {
	every volume in [
		{"hostPath": {"path": "/"}}, {"nfs": {"server": "nfs", "path": "/database"}}, {"nfs": {"server": "nfs", "path": "/data/../home"}},
		{"nfs": {"server": "other", "path": "/data"}}, {"csi": {"driver": "b.csi"}}, {"cephfs": {}},
	] {
		count(denials(volume)) == 1
	}
}

test_no_parameters if {
	count(allowed_data_sources.deny) == 1 with input.object as {"spec": {"volumes": [{"name": "v", "csi": {"driver": "a"}}]}}
		with input.parameters as {"types": []}
}
