// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Who looks after mail may try it, and writes nobody anything else in Sluice's name.
func TestNobodyElseRecordsNotices(t *testing.T) {
	const who = "mail-team"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mail-rights-test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:mail-administrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}},
	}
	if err := shared.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, binding) })
	mailTeam := clientFor(t, as(who))
	trial := func(name string) *v1alpha1.Notice {
		return &v1alpha1.Notice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NoticeSpec{
				Kind:      v1alpha1.NoticeTest,
				DueAt:     metav1.NewTime(time.Now()),
				Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Somebody", Email: "somebody@example.org"}},
			},
		}
	}
	forged := trial("forged")
	forged.Spec.Kind = v1alpha1.NoticeProjectDeleted
	forged.Spec.Subject = &v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: "thesis"}

	// The rights take effect a moment after they are given.
	eventually(t, func() error { return mailTeam.Create(t.Context(), trial("tried"), client.DryRunAll) })
	err := mailTeam.Create(t.Context(), forged.DeepCopy(), client.DryRunAll)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "recorded by lifecycle alone") {
		t.Errorf("a forged Notice: %v, want it to be refused", err)
	}
	if err := shared.admin.Create(t.Context(), forged, client.DryRunAll); err != nil {
		t.Errorf("a cluster administrator: %v", err)
	}
}
