// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

func projectWithNamespace(name, namespace string, held *v1alpha1.ProjectNamespace) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Spec:       v1alpha1.ProjectSpec{Namespace: namespace},
		Status:     v1alpha1.ProjectStatus{Namespace: held},
	}
}

// buildNamespace is built from "key=value" words: labels where the key is a label's,
// annotations elsewhere; "terminating" is what it says.
func buildNamespace(words ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thesis", UID: "ns-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "terminating":
			n.DeletionTimestamp = &metav1.Time{}
		case v1alpha1.LabelProject:
			n.Labels[key] = value
		default:
			n.Annotations[key] = value
		}
	}
	return n
}

func TestDecideClaim(t *testing.T) {
	const (
		label   = v1alpha1.LabelProject
		adoptBy = v1alpha1.AnnotationAdoptBy
		madeFor = v1alpha1.AnnotationCreatedFor
	)
	held := func(uid types.UID, origin v1alpha1.NamespaceOrigin) *v1alpha1.ProjectNamespace {
		return &v1alpha1.ProjectNamespace{Name: "thesis", UID: uid, Origin: origin}
	}
	tests := map[string]struct {
		project     *v1alpha1.Project
		namespace   *corev1.Namespace
		want        tenancy.Claim
		refused     string // the reason
		wantMessage string
	}{
		"none of that name": {
			project: projectWithNamespace("thesis", "", nil), want: tenancy.ClaimCreate,
		},
		"made by a start that crashed before it wrote the status": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(madeFor + "=thesis-uid"), want: tenancy.ClaimCreated,
		},
		"made, and the mark was taken off since": {
			project: projectWithNamespace("thesis", "", held("ns-1", v1alpha1.NamespaceCreated)), namespace: buildNamespace(), want: tenancy.ClaimCreated,
		},
		"adopted, and the consent was taken off since": {
			project: projectWithNamespace("thesis", "", held("ns-1", v1alpha1.NamespaceAdopted)), namespace: buildNamespace(label + "=thesis"), want: tenancy.ClaimAdopted,
		},
		"relabeled by a user": {
			project: projectWithNamespace("thesis", "", held("ns-1", v1alpha1.NamespaceCreated)), namespace: buildNamespace(label + "=other"), want: tenancy.ClaimCreated,
		},
		"marked for it": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(adoptBy + "=thesis"), want: tenancy.ClaimAdopt,
		},
		"exists, unmarked": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(),
			refused: tenancy.ReasonNotAdoptable, wantMessage: "kubectl annotate namespace thesis sluice.dev/adopt-by=thesis",
		},
		"a label proves nothing": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(label + "=thesis"),
			refused: tenancy.ReasonNotAdoptable, wantMessage: "exists already",
		},
		"made for an earlier project of the same name": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(madeFor + "=earlier-uid"),
			refused: tenancy.ReasonNotAdoptable, wantMessage: "exists already",
		},
		"another namespace by now, under the same name": {
			project: projectWithNamespace("thesis", "", held("ns-0", v1alpha1.NamespaceCreated)), namespace: buildNamespace(),
			refused: tenancy.ReasonNotAdoptable, wantMessage: "exists already",
		},
		"marked for another": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(adoptBy + "=course"),
			refused: tenancy.ReasonNotAdoptable, wantMessage: "marked for project course",
		},
		"another's, even if marked": {
			project: projectWithNamespace("thesis", "", nil), namespace: buildNamespace(label+"=course", adoptBy+"=thesis"),
			refused: tenancy.ReasonNamespaceTaken, wantMessage: "sluice.dev/project=course",
		},
		"going": {
			project: projectWithNamespace("thesis", "", held("ns-1", v1alpha1.NamespaceCreated)), namespace: buildNamespace("terminating"),
			refused: tenancy.ReasonNamespaceTerminating, wantMessage: "wait until it is gone",
		},
		"kube-system, even if marked": {
			project: projectWithNamespace("thesis", "kube-system", nil), namespace: buildNamespace(adoptBy + "=thesis"),
			refused: tenancy.ReasonSystemNamespace, wantMessage: "kube-system belongs to the system",
		},
		"default":       {project: projectWithNamespace("default", "", nil), refused: tenancy.ReasonSystemNamespace},
		"our own":       {project: projectWithNamespace("thesis", "sluice-system", nil), refused: tenancy.ReasonSystemNamespace},
		"the agent's":   {project: projectWithNamespace("thesis", "sluice-agent", nil), refused: tenancy.ReasonSystemNamespace},
		"a future kube": {project: projectWithNamespace("thesis", "kube-new", nil), refused: tenancy.ReasonSystemNamespace},
		"an operator's": {project: projectWithNamespace("thesis", "gpu-operator", nil), refused: tenancy.ReasonSystemNamespace},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, refusal := tenancy.DecideClaim(tc.project, tc.namespace)
			if tc.refused == "" {
				if refusal != nil || got != tc.want {
					t.Fatalf("Of = %q, %v; want %q", got, refusal, tc.want)
				}
				return
			}
			if refusal == nil || refusal.Reason != tc.refused || !strings.Contains(refusal.Error(), tc.wantMessage) {
				t.Fatalf("Of = %q, %+v; want %s saying %q", got, refusal, tc.refused, tc.wantMessage)
			}
		})
	}
}

func TestClaimOrigin(t *testing.T) {
	for claim, want := range map[tenancy.Claim]v1alpha1.NamespaceOrigin{
		tenancy.ClaimCreate: v1alpha1.NamespaceCreated, tenancy.ClaimCreated: v1alpha1.NamespaceCreated,
		tenancy.ClaimAdopt: v1alpha1.NamespaceAdopted, tenancy.ClaimAdopted: v1alpha1.NamespaceAdopted,
	} {
		if got := claim.Origin(); got != want {
			t.Errorf("%s.Origin() = %s, want %s", claim, got, want)
		}
	}
}

// What a created namespace contains is its members', also in the second in which the project was created; an adopted one can be older.
func TestMembersSince(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 3, 2, 9, 0, 7, 0, time.UTC))
	for origin, want := range map[v1alpha1.NamespaceOrigin]time.Time{
		v1alpha1.NamespaceCreated: created.Time, v1alpha1.NamespaceAdopted: created.Add(time.Second), "": created.Add(time.Second),
	} {
		project := projectWithNamespace("thesis", "thesis", nil)
		if project.CreationTimestamp = created; origin != "" {
			project.Status.Namespace = &v1alpha1.ProjectNamespace{Origin: origin}
		}
		if got := tenancy.MembersSince(project); !got.Time.Equal(want) {
			t.Errorf("%q: %v, want %v", origin, got, want)
		}
	}
}
