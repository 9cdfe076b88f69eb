// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// pendingSince is since when the deletion of project ending is requested.
var pendingSince = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// deletionRequest is the Extension by which lifecycle requests it.
var deletionRequest = fmt.Sprintf("deletion-%d", pendingSince.Unix())

// requestDeletion makes project ending one that has expired, and waits until lifecycle has requested its deletion.
func (w *world) requestDeletion(ctx context.Context) error {
	since, expired := pendingSince.Format(time.RFC3339), pendingSince.AddDate(0, -3, 0).Format(time.RFC3339)
	status := fmt.Appendf(nil, `{"status":{"phase":"PendingDeletion","phaseSince":%q,"closedAt":%q,"expiresAt":%[2]q,"deletionRequest":%q,"next":null}}`,
		since, expired, deletionRequest)
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: ending}}
	return eventually(ctx, func() error {
		if err := w.Admin.Get(ctx, client.ObjectKeyFromObject(project), project); err != nil {
			return err
		}
		if project.Status.DeletionRequest != deletionRequest { // lifecycle writes the first status at about the same time
			if err := w.Admin.Status().Patch(ctx, project, client.RawPatch(types.MergePatchType, status)); err != nil {
				return err
			}
		}
		return w.Admin.Get(ctx, client.ObjectKey{Namespace: ending, Name: deletionRequest}, &v1alpha1.Extension{})
	})
}

const (
	// endingDean administers the department of project ending, projectDean has that role in the project alone.
	endingDean  role = "administrator@" + ending
	projectDean role = "local@" + ending
	endingRobot role = "system:serviceaccount:" + ending + ":robot"
)

var (
	theRequest = named("Extension", deletionRequest)
	// nextYear is a day to which a deletion can be dismissed.
	nextYear  = time.Now().AddDate(1, 0, 0).Format(time.DateOnly)
	approval  = `{"status":{"decision":"Approved","message":"it is over"}}`
	dismissal = `{"status":{"decision":"Denied","message":"the defense is late","until":"` + nextYear + `"}}`
	// strangers have no rights in the project, and researchers none on decisions.
	strangers   = []role{neighbor, outsider, neighborsOwner, otherDean, dean, namespaceAdmin}
	researchers = []role{l2, l1, engineer, viewer, owner}
)

// Only an administrator of the department decides on the deletion of a project, once, on lifecycle's request, with a reason.
var _ = attacks(
	decision("the deletion of a project approved", approval),
	decision("the deletion of a project dismissed", dismissal),
	decision("the deletion approved in the name of an administrator",
		`{"status":{"decision":"Approved","message":"it is over","decidedBy":"administrator@hostile-ending"}}`),
	decision("the request marked as applied", `{"status":{"conditions":[{"type":"Applied","status":"True","reason":"DeletionApproved","message":"",`+
		`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`),
	row{
		class: extensions, name: "the deletion approved by server-side apply", roles: []role{editor, manager, endingRobot, projectDean},
		rbac: append(researchers, strangers...), want: cannotDecide, uncontrolled: "the request is Sluice's",
		attack: inNamespace(ending, do("apply the status of the request", func(a *attacker) (*unstructured.Unstructured, error) {
			object := newObject("Extension")
			object.SetName(deletionRequest)
			object.SetNamespace(a.namespace)
			object.Object["status"] = map[string]any{"decision": "Approved", "message": "it is over"}
			delete(object.Object, "spec")
			return object, a.client.SubResource("status").Apply(a.t.Context(), client.ApplyConfigurationFromUnstructured(object),
				client.FieldOwner("hostile"), client.ForceOwnership, client.DryRunAll)
		})),
	},
	row{
		class: extensions, name: "the request changed without its status", roles: append([]role{editor, manager, endingRobot, projectDean, endingDean}, append(researchers, strangers...)...),
		attack: inNamespace(ending, patch(theRequest, approval)), want: "cannot patch resource \"extensions\"",
	},
	byEndingDean("approves without a reason", `{"status":{"decision":"Approved"}}`, "status.message: required"),
	byEndingDean("approves with a reason of blanks", `{"status":{"decision":"Approved","message":"\u200b \u00a0"}}`, "status.message: required"),
	byEndingDean("approves until a day", `{"status":{"decision":"Approved","message":"over","until":"`+nextYear+`"}}`, "status.until"),
	byEndingDean("dismisses for good", `{"status":{"decision":"Denied","message":"never"}}`, "status.until: required"),
	byEndingDean("dismisses until a day that has passed", `{"status":{"decision":"Denied","message":"old","until":"2026-01-01"}}`, "give a day after today"),
	byEndingDean("dismisses for a century", `{"status":{"decision":"Denied","message":"long","until":"2126-01-01"}}`, "at most 5 years ahead"),
	byEndingDean("decides on neither", `{"status":{"message":"maybe"}}`, "status.decision: must be"),
	byEndingDean("writes the new end", `{"status":{"decision":"Denied","message":"more","until":"`+nextYear+`","newEnd":"2030-01-01T00:00:00Z"}}`, "Sluice writes the other fields"),
	row{class: extensions, name: "an administrator approves the deletion", allowed: true, roles: []role{endingDean}, attack: inNamespace(ending, patchStatus(theRequest, approval))},
	row{class: extensions, name: "an administrator dismisses the deletion", allowed: true, roles: []role{endingDean}, attack: inNamespace(ending, patchStatus(theRequest, dismissal))},
	row{
		class: identity, name: "a deletion approved in the name of another administrator", roles: []role{endingDean}, uncontrolled: "the request is Sluice's",
		attack:   inNamespace(ending, patchStatus(theRequest, `{"status":{"decision":"Approved","message":"over","decidedBy":"stranger@hostile.example"}}`)),
		harmless: has("status.decidedBy", "{user}"),
	},
)

const cannotDecide = "cannot decide on it; a user with the role department-administrator in department hostile-ending can"

// decision is a row of a status of the request by those who do not decide on it.
func decision(name, body string) row {
	return row{
		class: extensions, name: name, roles: []role{editor, manager, endingRobot, projectDean}, rbac: append(researchers, strangers...),
		attack: inNamespace(ending, patchStatus(theRequest, body)), want: cannotDecide,
	}
}

func byEndingDean(name, body, want string) row {
	return row{class: extensions, name: "an administrator " + name, roles: []role{endingDean}, attack: inNamespace(ending, patchStatus(theRequest, body)), want: want}
}

// Lifecycle alone requests the deletion of a project, and takes the request back.
var _ = attacks(
	forgedRequest("the deletion of a project requested", "{spec: {action: Delete}}", "Delete is requested by Sluice alone"),
	forgedRequest("the deletion requested in Sluice's name",
		"{metadata: {annotations: {sluice.dev/created-by: system:serviceaccount:sluice-system:lifecycle}}, spec: {action: Delete}}", "Delete is requested by Sluice alone"),
	forgedRequest("the deletion requested with its approval", "{spec: {action: Delete}, status: {decision: Approved, message: over, decidedBy: me}}",
		"Delete is requested by Sluice alone"),
	forgedRequest("the name of a later request taken", "{metadata: {name: deletion-1893456000}}", "must not begin with deletion-"),
	forgedRequest("the name of a later request generated", "{metadata: {generateName: deletion-}}", "must not begin with deletion-"),
	row{
		class: extensions, name: "the request to delete a project deleted", roles: []role{l2, l1, editor, engineer, manager, owner, endingRobot, projectDean, endingDean},
		rbac: append([]role{viewer}, strangers...), attack: inNamespace(ending, remove(theRequest)), want: "and users do not delete it",
	},
	row{
		class: extensions, name: "all requests deleted", roles: append([]role{editor, manager, endingRobot, projectDean, endingDean}, append(researchers, strangers...)...),
		attack: inNamespace(ending, removeAll("Extension")), want: "cannot deletecollection resource \"extensions\"",
	},
)

func forgedRequest(name, fragment, want string) row {
	return row{
		class: extensions, name: name, roles: []role{l2, l1, editor, engineer, manager, owner, endingRobot, projectDean, endingDean}, rbac: append([]role{viewer}, strangers...),
		attack: inNamespace(ending, create("Extension", fragment)), want: want, uncontrolled: "most of them cannot renew the project either",
	}
}

// An administrator of the department alone deletes a project by hand, and lifecycle alone writes its status.
var _ = attacks(
	row{
		class: tenancy, name: "a project deleted", roles: append([]role{editor, manager, endingRobot, projectDean, namespaceAdmin, neighbor, outsider, neighborsOwner}, researchers...),
		attack: remove(named("Project", ending)), want: "cannot delete resource \"projects\"",
	},
	row{class: tenancy, name: "a project deleted by administrators of other departments", roles: []role{dean, otherDean}, attack: remove(named("Project", ending)), want: "does not administer"},
	row{class: tenancy, name: "an administrator deletes a project", allowed: true, roles: []role{endingDean}, attack: remove(named("Project", ending))},
	row{
		class: tenancy, name: "the phase and the approval of a project forged",
		roles:  append([]role{editor, manager, endingRobot, projectDean, endingDean}, append(researchers, strangers...)...),
		attack: patchStatus(named("Project", ending), `{"status":{"phase":"Deleting"}}`), want: "cannot patch resource \"projects/status\"",
	},
	row{
		class: tenancy, name: "a department with a project deleted", roles: []role{endingDean, otherDean, owner, manager},
		attack: remove(named("Department", ending)), want: "cannot delete resource \"departments\"",
	},
	row{
		class: tenancy, name: "a department with a project deleted by a system administrator", roles: []role{clusterAdmin},
		attack: remove(named("Department", ending)), want: "first delete them, or move them",
	},
	row{
		class: tenancy, name: "the namespace of a project deleted", roles: append([]role{editor, manager, endingRobot, projectDean, endingDean}, researchers...),
		attack: remove(named("Namespace", ending)), want: "cannot delete resource \"namespaces\"",
	},
	row{
		class: tenancy, name: "access that outlives a project", roles: append([]role{editor, manager, endingRobot, projectDean, endingDean}, researchers...),
		attack: inNamespace(ending, apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: mine, finalizers: [example.org/hold]},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "sluice:editor"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{user}"}]}`)),
		want: "cannot create resource \"rolebindings\"",
	},
	row{
		class: tenancy, name: "a token that outlives a project", roles: append([]role{editor, manager, endingRobot, projectDean, endingDean}, researchers...),
		attack: inNamespace(ending, post(named("ServiceAccount", "default"), "token", `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {expirationSeconds: 86400}}`)),
		want:   "cannot create resource \"serviceaccounts/token\"",
	},
)

// A suspended project starts no GPU work.
var _ = attacks(
	inSuspendedProject("Pod"), inSuspendedProject("Job"), inSuspendedProject("Deployment"), inSuspendedProject("StatefulSet"),
)

func inSuspendedProject(kind string) row {
	return row{
		class: owners, name: "a " + kind + " with a GPU, in a suspended project", roles: []role{l2, l1, editor, endingRobot},
		attack: inNamespace(ending, createPods(kind, limits("nvidia.com/gpu"))), want: "has expired: it has accepted no new pods with GPUs since",
	}
}
