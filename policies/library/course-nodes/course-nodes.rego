# METADATA
# title: Nodes of a course
# description: >-
#   Keeps the pods of a course on its nodes. The requirement is added to those of the author and of the node pool: it restricts the nodes,
#   and never allows further ones.
# custom:
#   misses: pods of other projects on these nodes, which a node pool of its own keeps away
package course_nodes

nodes contains {"key": input.parameters.key, "operator": "In", "values": input.parameters.values}
