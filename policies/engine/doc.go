// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine compiles policies written in Rego and evaluates them.
//
// It takes the sources of all policies ([Source]), and for each request the object, its
// project and the other fields that policies read ([Input]). It returns the changes,
// denials and warnings of all policies ([Outcome]), or the objects that they render for
// a project ([Rendering]). It never changes an object (package merge does), never reads
// or writes the cluster, and gives policies no network, clock, randomness or host.
//
// # What a policy defines
//
// A policy is one Rego v1 module in a package of any name. Rules of these names have a
// meaning; all others are the author's own:
//
//	defaults, overrides          an object: a part of the admitted object
//	nodes, append, remove        a set of node requirements, additions, paths
//	deny, warn                   a set of strings or {"msg", "field", "fix"}
//	violation                    a set of {"msg", "details"}
//	objects                      a set of complete objects
//	requires                     a set of requirements; see below
//	type                         a string: train, interactive or inference
//
// A Rego v0 module whose only rule of these names is violation is a Gatekeeper template.
// It compiles unchanged as v0, without OPA's strict mode. In it, a rule named type is
// the author's own. Every other module must be v1.
//
// The rule type runs before all others ([Set.WorkloadType]), for workloads whose author
// set no type. If no policy defines one, the type is train. Two policies with different
// types are an error, and so is any other value. DryRun policies are not evaluated for
// types.
//
// # What a policy reads
//
//	input.review       the AdmissionRequest, in Gatekeeper's shape
//	input.object       the object; input.oldObject on UPDATE, else undefined
//	input.workload     the GPU request of the pod; of a Job, that of each of its pods
//	input.project      the project, input.department, input.nodePools (in order)
//	input.nodePool     the node pool, in objects and requires evaluated for one
//	input.namespace    the name, the labels and the annotations of the object's namespace
//	input.now          the time of the request in the department's zone, RFC 3339
//	input.use          the project's present use, for messages
//	input.parameters   the policy's parameters; {} without any
//	data.config        the ConfigMaps of administrators, by name
//	data.objects       objects of the cluster, by kind, namespace and name
//	data.sluice.lib    Sluice's libraries
//	data.lib           the libraries of teams; there is no other data
//
// A policy whose match names no kinds is evaluated for pods. It is evaluated for Jobs if
// its match names them. The rule type is evaluated for pods only.
//
// Only deny, violation and warn may read input.now and input.use. Any other rule that
// depends on them, through helper rules and functions too, is a compile error. Passing on
// all of input, or reading input[x] with a variable x, counts as reading them. A
// reference to a field of input or to data that does not exist is a compile error too:
// undefined inside a deny would mean consent. Fields below these are checked by
// [Engine.CheckTypes], when a policy is applied. A policy can carry a schema of its
// parameters; others are an error.
//
// # Data
//
// [Data] has the ConfigMaps and objects that policies read as data.config and data.objects. A
// [Set] has one version of it. What a policy names must exist: else the policy fails
// with [ErrMissingData], since undefined inside a deny would mean consent. The rules objects
// and requires cannot read data.
//
// # What a policy requires
//
// The rules objects and requires are evaluated for each project, department and node
// pool. It is input.object, and its kind distinguishes the three. An element of requires
// has one of these forms:
//
//	{"crd": "queues.scheduling.run.ai", "version": "v2", "fix": "install KAI"}
//	{"setting": {…}, "is": true, "fix": "turn it on", "optional": true}
//	{"setting": {…}, "as": "queueLabelKey", "default": "kai.scheduler/queue"}
//
// The first requires a custom resource definition, and that it serves the version if one
// is named. A setting is a place in an object of the cluster:
//
//	{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "kueue-system",
//	 "name": "kueue-manager-config",
//	 "path": ["data", "controller_manager_config.yaml", "fairSharing"]}
//
// Where the path continues below a string, the string is read as YAML; in a list a key is
// an index. The value must equal is, or, without is, exist; a list must contain all that
// is lists. An optional requirement counts as met if the definition, the object or its
// kind does not exist. A setting with as requires nothing: policies read the text at that
// place, or the default, under this name in a pool's settings.
//
// # What is cached
//
// The engine caches a policy's latest results. The cache key is the part of input that the
// policy reads. Package dependency finds it at compile time, down to the fields of list
// elements: a rule that reads the image of each container is not evaluated again if only a
// variable differs. The version of the data that the policy reads is part of the key. Results
// that depend on the time or the present use are not cached, and neither are errors.
//
// # Libraries of teams
//
// A [Source] of the type Library is a module with a package below lib. A policy is compiled
// with the libraries that it imports, itself and through others; its digest covers them. A
// version of a library with which something no longer compiles that did does not come into
// force. A policy whose library was removed stays in force with the library that it had.
//
// # What results do
//
// A Deny policy refuses and changes the object. A Warn policy changes it too, and warns
// where Deny would refuse. A DryRun policy has no effect; its result is reported
// separately. A policy fails if it returns an error, exceeds its time limit, or has a rule
// of another type than in the table above. A failed policy refuses the object and names
// itself; a failed Warn policy without mutating rules only warns, and a failed DryRun
// policy only reports.
//
// A policy that no longer compiles never replaces its last good version.
package engine
