// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine compiles policies written in Rego and asks them about objects.
//
// Enters: the sources of all policies ([Source]), and for each question the
// object, its project and what else policies read ([Input]). Leaves: what the
// policies want of the object, what they refuse and what they warn of
// ([Outcome]), or the objects that they render for a project ([Rendering]).
//
// # What a policy defines
//
// A policy is one Rego v1 module in a package of any name. Rules of these names
// have a meaning, all others are the author's own:
//
//	defaults, overrides          an object: the part of the object it speaks of
//	nodes, append, remove        a set, of node requirements, additions, paths
//	deny, warn                   a set of strings or {"msg", "field", "fix"}
//	violation                    a set of {"msg", "details"}
//	objects                      a set of whole objects
//	requires                     a set of requirements; see below
//	type                         a string: train, interactive or inference
//
// A module that is Rego v0 and defines violation and nothing else of the above
// is a Gatekeeper template: it is compiled as v0, as it is, and OPA's strict
// mode is off for it. A rule of its own may be named type. Every other module
// must be v1.
//
// The rule type is asked by itself, before all others ([Set.Type]): it is the
// workload's type where its author said none, and undefined where the policy does
// not mind. No policy says it: the type is train. Two that say different ones
// are an error, and so is any other value. DryRun policies are not asked.
//
// # What a policy reads
//
//	input.review       the AdmissionRequest, in Gatekeeper's shape
//	input.object       the object; input.oldObject on UPDATE, else undefined
//	input.workload     what the pod asks for; of a Job, what each of its pods will
//	input.project      the project, input.department, input.nodePools (in order)
//	input.nodePool     the node pool, in objects and requires that are asked for one
//	input.now          the time of the request in the department's zone, RFC 3339
//	input.use          the project's present use, for messages
//	input.parameters   the policy's parameters, {} where it has none
//	data.sluice.lib    the libraries; there is no other data
//
// A policy whose match names no kinds is asked about pods. About Jobs it is asked
// where it names them; the rule type is about pods only.
//
// input.now and input.use may be read by deny, violation and warn only. Anywhere
// else, through whatever helper rule or function, they are a compile error; so
// is handing on input whole or reading input[x] with x unknown, since that may
// read them. A field of input that does not exist, and data that does not
// exist, are compile errors too: undefined inside a deny would be consent.
//
// # What a policy requires
//
// The rules objects and requires are asked about each project, each department
// and each node pool, which is input.object; its kind tells which. An element of
// requires is one of
//
//	{"crd": "queues.scheduling.run.ai", "version": "v2", "fix": "install KAI"}
//	{"setting": {…}, "is": true, "fix": "turn it on", "optional": true}
//	{"setting": {…}, "as": "queueLabelKey", "default": "kai.scheduler/queue"}
//
// The first is a custom resource definition, which serves that version where one
// is named. A setting is a place in an object of the cluster:
//
//	{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "kueue-system",
//	 "name": "kueue-manager-config",
//	 "path": ["data", "controller_manager_config.yaml", "fairSharing"]}
//
// Where the path leads on below a string, that is read as YAML; in a list a step
// is an index. The value must be the one given as is, or, without it, be there; of
// a list, what is given must be among the rest. An optional requirement is none
// where nobody can look: where the definition, the object or its kind is not
// there. With as nothing is required: the text at that place, else the default, is
// what policies read under this name in a pool's settings.
//
// # What is remembered
//
// A policy's latest answers are remembered by the parts of input that they follow
// from. Which those are is found when it is compiled, by following the values of
// input through its rules, down to the fields of the elements of lists: a rule
// that takes the image of each container is not asked about anew where only a
// variable differs. What is compared, answered or handed to a built-in function
// is read whole, and so is all that a rule names that the compiler cannot follow:
// one with the keyword with. Answers that depend on the time or the present use
// are not remembered, nor are errors.
//
// # What becomes of the answers
//
// A Deny policy refuses and changes. A Warn policy warns where it would refuse,
// and changes all the same. A DryRun policy does nothing; what it would do is
// reported apart. A policy that errs, that passes its deadline or whose rules
// have a value of another shape than the table above refuses the object and
// names itself; a Warn policy that changes nothing warns instead, and a DryRun
// policy only reports.
//
// A policy that no longer compiles does not replace the version that did.
//
// It never changes an object (package merge does), never reads or writes the
// cluster, and gives policies no network, no clock, no chance and no host.
package engine
