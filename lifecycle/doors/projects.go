// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// projectDeletion: a project is deleted by whoever administers its department, which
// the right to delete Projects does not tell. It is asked here, and not of the
// webhook, so that projects can be deleted while that is down.
var projectDeletion = door{
	name:  "project-deletion",
	where: everywhere,
	rules: rules(in("sluice.dev", []admissionv1.OperationType{admissionv1.Delete}, "projects")),
	checks: []check{{
		// What is collected has an owner that somebody wrote who was judged.
		expression: `variables.isManager || variables.user == 'system:serviceaccount:kube-system:generic-garbage-collector' ||` +
			` authorizer.group('sluice.dev').resource('departments').subresource('projects').name(oldObject.spec.department).check('administer').allowed()`,
		message: `'project ' + oldObject.metadata.name + ' belongs to department ' + oldObject.spec.department + ', and ' + variables.user` +
			` + ' does not administer that: ask one of its administrators'`,
	}},
}
