// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members gives the members of departments and projects the rights of
// their roles.
//
// Enters: Projects with their Departments and Namespaces, as watched. Leaves: in a
// project's namespace, once it is governed, a RoleBinding for each role that
// somebody has there, as a member of the project or of its department; and beside
// it, cluster-wide, the right to get the own Project by its name, for research
// managers to manage it, for a department's administrators and viewers to get their
// Department, and for its administrators to administer it. What somebody changes or deletes of these comes
// back; they go with the member, with a move to another department, and before all
// else with the project. A project's phase changes nothing: who may look after it
// may do so until it is gone.
//
// It never decides who is a member, nor what a role may do: that is in the specs,
// which admission judged, and in the ClusterRoles that are installed. It never
// touches what somebody else made under one of its names, and says so on the object
// whose members lack their rights.
package members
