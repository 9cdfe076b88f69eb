// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func newDeletionRequest(project string) *v1alpha1.Extension {
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: "deletion-1"},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: "sluice.dev/v1alpha1", Kind: "Project", Name: project},
			Action: v1alpha1.ActionDelete, Reason: "the project has expired",
		},
	}
}

// awaitingDeletion returns the status of a suspended project whose deletion is requested.
func awaitingDeletion() v1alpha1.ProjectStatus {
	return v1alpha1.ProjectStatus{
		Phase: v1alpha1.ProjectPendingDeletion, PhaseSince: projectTime(-20), ExpiresAt: projectTime(-80), ClosedAt: projectTime(-80),
		DeletionRequest: "deletion-1", Expiry: &v1alpha1.ProjectExpiry{Validity: "P6M"},
	}
}

func endingProjects() []v1alpha1.Project {
	unconfirmed := awaitingDeletion()
	unconfirmed.ClosedAt, unconfirmed.PhaseSince = nil, projectTime(-3)
	unconfirmed.GPU.Guaranteed, unconfirmed.GPU.Allocated = resource.MustParse("4"), resource.MustParse("2500m")
	approved := awaitingDeletion()
	approved.Next = &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectDeleting, At: *projectTime(6)}
	approved.Expiry = &v1alpha1.ProjectExpiry{Deletion: &v1alpha1.ProjectDeletionApproval{
		Extension: "deletion-1", UID: "u", At: *projectTime(-1), ApprovedBy: "dean@example.org", Message: "handed in\x1b[31m",
	}}
	untold := awaitingDeletion()
	untold.Expiry, untold.PhaseSince = approved.Expiry, projectTime(-19)
	deleting := awaitingDeletion()
	deleting.Phase, deleting.PhaseSince, deleting.Expiry = v1alpha1.ProjectDeleting, projectTime(0), approved.Expiry
	return []v1alpha1.Project{
		newProject("course-ml", "h2-students", expiringIn(90, v1alpha1.ProjectActive, v1alpha1.ProjectExpired)),
		newProject("deleting", "h2-students", deleting),
		newProject("protein-folding", "h2-research", unconfirmed),
		newProject("thesis-mueller", "h2-students", awaitingDeletion(), func(p *v1alpha1.Project) {
			p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: v1alpha1.Contact{Email: "ben@example.org"}})
		}),
		newProject("thesis-schmidt", "h2-students", approved),
		newProject("untold", "h2-students", untold),
	}
}

func TestDecideProjectDeletion(t *testing.T) {
	until := ptr.To(period.MustParseDate("2027-03-31"))
	approval := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: "handed in"}
	dismissal := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, Message: "defense in March", Until: until}
	refusal := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, Message: "in use"}
	tests := map[string]struct {
		project  string
		change   func(*v1alpha1.Extension)
		decision v1alpha1.ExtensionStatus
		err      string
		prints   string
	}{
		"approve":                         {project: "thesis-mueller", decision: approval, prints: "The deletion of project thesis-mueller is approved. It begins seven days after"},
		"dismiss":                         {project: "thesis-mueller", decision: dismissal, prints: "It stays suspended until the end of 2027-03-31"},
		"dismiss an unconfirmed one":      {project: "protein-folding", decision: refusal, prints: "It is Active until its next anniversary."},
		"without a message":               {project: "thesis-mueller", decision: v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved}, err: "--message: required"},
		"without an end":                  {project: "thesis-mueller", decision: refusal, err: "--until: required, since the project has expired"},
		"an unconfirmed one with an end":  {project: "protein-folding", decision: dismissal, err: "--until: omit it"},
		"an active project":               {project: "course-ml", decision: approval, err: "does not await the approval of its deletion (phase Active)"},
		"an approved one":                 {project: "thesis-schmidt", decision: dismissal, err: "was approved by dean@example.org, and a decision is final; a renewal or a hold undoes it"},
		"one that is being deleted":       {project: "deleting", decision: approval, err: "being deleted already"},
		"a request of another action":     {project: "thesis-mueller", decision: approval, change: func(e *v1alpha1.Extension) { e.Spec.Action = v1alpha1.ActionRenew }, err: "does not request the deletion"},
		"a request that was decided":      {project: "thesis-mueller", decision: approval, change: func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionDenied }, err: "already decided"},
		"a request that does not exist":   {project: "thesis-mueller", decision: approval, change: func(e *v1alpha1.Extension) { e.Name = "deletion-0" }, err: "get the request to delete it, extension deletion-1"},
		"one whose deletion is requested": {project: "none", decision: approval, err: "its deletion is not requested yet"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			early := awaitingDeletion()
			early.DeletionRequest = ""
			projects := append(endingProjects(), newProject("none", "h2-students", early))
			request := newDeletionRequest(tc.project)
			if tc.change != nil {
				tc.change(request)
			}
			c := newFakeClient(t, interceptor.Funcs{}, request)
			for i := range projects {
				if projects[i].Name != tc.project {
					continue
				}
				extension, err := decideProjectDeletion(t.Context(), c, &projects[i], tc.decision)
				if tc.err != "" {
					if err == nil || !strings.Contains(err.Error(), tc.err) {
						t.Fatalf("err = %v, want it to contain %q", err, tc.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.decision, extension.Status); diff != "" {
					t.Errorf("the decision differs (-want +got)\n%s", diff)
				}
				if got := describeDeletionDecision(&projects[i], &tc.decision); !strings.Contains(got, tc.prints) {
					t.Errorf("printed %q, want it to contain %q", got, tc.prints)
				}
			}
		})
	}
}

func TestDecisionsNameTheirTarget(t *testing.T) {
	for args, want := range map[string]string{
		"approve project/thesis":                    "to approve the deletion of a project, add --delete and the reason as --message",
		"approve job/training":                      "give the name of the extension, which sluice extensions lists",
		"approve thesis --delete":                   "want project/NAME, the project to delete",
		"deny project/thesis":                       "sluice dismiss project/thesis --until DATE --message REASON",
		"deny project/thesis --delete":              "unknown flag: --delete",
		"dismiss project/thesis --until tomorrow":   "--until: date",
		"projects --orphaned thesis":                "omit thesis",
		"projects --orphaned --pending-deletion":    "none of the others can be",
		"projects --expiring-within 6d --orphaned ": "none of the others can be",
	} {
		if _, err := runCommand(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sluice %s: err = %v, want it to contain %q", args, err, want)
		}
	}
}

func TestPendingDeletionTable(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	claim := func(namespace, name string) client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	c := newFakeClient(t, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if listed := (&client.ListOptions{}); listed.ApplyOptions(options).Namespace == "protein-folding" {
				return forbiddenError()
			}
			return c.List(ctx, list, options...)
		},
	}, claim("thesis-mueller", "data"), claim("thesis-mueller", "models"))
	rows := newPendingDeletionRows(endingProjects())
	if err := countVolumeClaims(t.Context(), c, rows); err != nil {
		t.Fatal(err)
	}
	for format, wide := range map[string]bool{"table": false, "wide": true} {
		var out bytes.Buffer
		if err := pendingDeletionTable(rows, berlin).Write(&out, wide); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, out.String(), "projects/pending-deletion-"+format+".txt")
	}
	golden.Assert(t, jsonText(t, pendingDeletionDocument{Now: projectsNow, Projects: rows}), "projects/pending-deletion.json")
}

func TestOrphanedNamespaces(t *testing.T) {
	namespace := func(name, record string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.AnnotationFormerProject: record},
		}}
	}
	c := newFakeClient(
		t, interceptor.Funcs{},
		namespace("thesis", `{"project":"thesis-mueller","department":"h2-students","deletedAt":"2026-11-20T09:00:00Z","approvedBy":"dean@example.org","cause":"VolumeClaims","volumeClaims":3}`),
		namespace("lab", `{"project":"lab","department":"h2-research","deletedAt":"2026-10-01T08:00:00Z","cause":"NamespaceAdopted","volumeClaims":0}`),
		namespace("edited", `volumes of \x1b[31manna`),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
	)
	rows, err := listOrphanedNamespaces(t.Context(), c, "")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, tableText(t, orphanedNamespaceTable(rows, time.UTC)), "projects/orphaned.txt")
	golden.Assert(t, jsonText(t, map[string][]orphanedNamespaceRow{"namespaces": rows}), "projects/orphaned.json")
	if rows, err := listOrphanedNamespaces(t.Context(), c, "h2-students"); err != nil || len(rows) != 1 || rows[0].Namespace != "thesis" {
		t.Errorf("of a department: %+v, %v", rows, err)
	}
	_, err = listOrphanedNamespaces(t.Context(), asProjectMember(c), "")
	if err == nil || !strings.Contains(err.Error(), "--orphaned is for administrators of the cluster") {
		t.Errorf("a member lists them: %v", err)
	}
}

// Invariant 11: a project whose deletion has begun is closed, and yet neither has one expired that was deleted by hand, nor one
// that its owners did not confirm.
func TestReasonsOfBegunDeletions(t *testing.T) {
	approval := &v1alpha1.ProjectExpiry{Deletion: &v1alpha1.ProjectDeletionApproval{UID: "u", ApprovedBy: "dean@example.org"}}
	deleting := awaitingDeletion()
	deleting.Phase, deleting.PhaseSince, deleting.Expiry = v1alpha1.ProjectDeleting, projectTime(0), approval
	byHand, unconfirmed := deleting, deleting
	byHand.ClosedAt, byHand.ExpiresAt, byHand.Expiry = projectTime(0), projectTime(90), nil
	unconfirmed.ClosedAt = projectTime(0)
	for want, status := range map[string]v1alpha1.ProjectStatus{
		"expired 2026-09-04": deleting, "deleted by hand": byHand, "not confirmed": unconfirmed,
	} {
		rows := newPendingDeletionRows([]v1alpha1.Project{newProject("thesis", "h2-students", status)})
		if got := rows[0].describeReason(time.UTC); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
