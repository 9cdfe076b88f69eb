package course_nodes_test

import data.course_nodes

test_nodes if {
	course_nodes.nodes == {{"key": "k", "operator": "In", "values": ["a", "b"]}} with input.parameters as {"key": "k", "values": ["a", "b"]}
}
