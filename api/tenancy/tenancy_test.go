// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

func project(name, namespace string, held *v1alpha1.ProjectNamespace) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Spec:       v1alpha1.ProjectSpec{Namespace: namespace},
		Status:     v1alpha1.ProjectStatus{Namespace: held},
	}
}

// namespace is built from "key=value" words: labels where the key is a label's,
// annotations elsewhere; "terminating" is what it says.
func namespace(words ...string) *corev1.Namespace {
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

func TestOf(t *testing.T) {
	const (
		label   = v1alpha1.LabelProject
		adoptBy = v1alpha1.AnnotationAdoptBy
		madeFor = v1alpha1.AnnotationMadeFor
	)
	held := func(uid types.UID, origin v1alpha1.NamespaceOrigin) *v1alpha1.ProjectNamespace {
		return &v1alpha1.ProjectNamespace{Name: "thesis", UID: uid, Origin: origin}
	}
	tests := map[string]struct {
		project   *v1alpha1.Project
		namespace *corev1.Namespace
		want      tenancy.Claim
		refused   string // the reason
		says      string
	}{
		"none of that name": {
			project: project("thesis", "", nil), want: tenancy.Make,
		},
		"made by a start that crashed before it wrote the status": {
			project: project("thesis", "", nil), namespace: namespace(madeFor + "=thesis-uid"), want: tenancy.Made,
		},
		"made, and the mark was taken off since": {
			project: project("thesis", "", held("ns-1", v1alpha1.NamespaceMade)), namespace: namespace(), want: tenancy.Made,
		},
		"adopted, and the consent was taken off since": {
			project: project("thesis", "", held("ns-1", v1alpha1.NamespaceAdopted)), namespace: namespace(label + "=thesis"), want: tenancy.Adopted,
		},
		"relabelled by somebody": {
			project: project("thesis", "", held("ns-1", v1alpha1.NamespaceMade)), namespace: namespace(label + "=other"), want: tenancy.Made,
		},
		"marked for it": {
			project: project("thesis", "", nil), namespace: namespace(adoptBy + "=thesis"), want: tenancy.Adopt,
		},
		"exists, unmarked": {
			project: project("thesis", "", nil), namespace: namespace(),
			refused: tenancy.ReasonNotAdoptable, says: "kubectl annotate namespace thesis sluice.dev/adopt-by=thesis",
		},
		"a label proves nothing": {
			project: project("thesis", "", nil), namespace: namespace(label + "=thesis"),
			refused: tenancy.ReasonNotAdoptable, says: "exists already",
		},
		"made for an earlier project of the same name": {
			project: project("thesis", "", nil), namespace: namespace(madeFor + "=earlier-uid"),
			refused: tenancy.ReasonNotAdoptable, says: "exists already",
		},
		"another namespace by now, under the same name": {
			project: project("thesis", "", held("ns-0", v1alpha1.NamespaceMade)), namespace: namespace(),
			refused: tenancy.ReasonNotAdoptable, says: "exists already",
		},
		"marked for another": {
			project: project("thesis", "", nil), namespace: namespace(adoptBy + "=course"),
			refused: tenancy.ReasonNotAdoptable, says: "marked for project course",
		},
		"another's, even if marked": {
			project: project("thesis", "", nil), namespace: namespace(label+"=course", adoptBy+"=thesis"),
			refused: tenancy.ReasonNamespaceTaken, says: "sluice.dev/project=course",
		},
		"going": {
			project: project("thesis", "", held("ns-1", v1alpha1.NamespaceMade)), namespace: namespace("terminating"),
			refused: tenancy.ReasonNamespaceTerminating, says: "once it has gone",
		},
		"kube-system, even if marked": {
			project: project("thesis", "kube-system", nil), namespace: namespace(adoptBy + "=thesis"),
			refused: tenancy.ReasonSystemNamespace, says: "kube-system belongs to the system",
		},
		"default":       {project: project("default", "", nil), refused: tenancy.ReasonSystemNamespace},
		"our own":       {project: project("thesis", "sluice-system", nil), refused: tenancy.ReasonSystemNamespace},
		"a future kube": {project: project("thesis", "kube-new", nil), refused: tenancy.ReasonSystemNamespace},
		"an operator's": {project: project("thesis", "gpu-operator", nil), refused: tenancy.ReasonSystemNamespace},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, refusal := tenancy.Of(tc.project, tc.namespace)
			if tc.refused == "" {
				if refusal != nil || got != tc.want {
					t.Fatalf("Of = %q, %v; want %q", got, refusal, tc.want)
				}
				return
			}
			if refusal == nil || refusal.Reason != tc.refused || !strings.Contains(refusal.Error(), tc.says) {
				t.Fatalf("Of = %q, %+v; want %s saying %q", got, refusal, tc.refused, tc.says)
			}
		})
	}
}

func TestOriginOfAClaim(t *testing.T) {
	for claim, want := range map[tenancy.Claim]v1alpha1.NamespaceOrigin{
		tenancy.Make: v1alpha1.NamespaceMade, tenancy.Made: v1alpha1.NamespaceMade,
		tenancy.Adopt: v1alpha1.NamespaceAdopted, tenancy.Adopted: v1alpha1.NamespaceAdopted,
	} {
		if got := claim.Origin(); got != want {
			t.Errorf("%s.Origin() = %s, want %s", claim, got, want)
		}
	}
}
