// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/test/scale/stubapi"
)

// Another process connects with a kubeconfig and reads its quotas.
func TestCountQuotas(t *testing.T) {
	server, config := startServer(t, stubapi.CountQuotas)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	mustSucceed(t, stubapi.WriteKubeconfig(config, file))
	config, err := clientcmd.BuildConfigFromFlags("", file)
	mustSucceed(t, err)
	c, ctx := newClient(t, config), t.Context()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("4")}},
	}
	mustSucceed(t, c.Create(ctx, quota))
	for _, want := range []string{"4", "6"} {
		quota.ResourceVersion = ""
		quota.Spec.Hard["requests.nvidia.com/gpu"] = resource.MustParse(want)
		mustSucceed(t, c.Update(ctx, quota))
		mustSucceed(t, c.Get(ctx, client.ObjectKeyFromObject(quota), quota))
		counted, used := quota.Status.Hard["requests.nvidia.com/gpu"], quota.Status.Used["requests.nvidia.com/gpu"]
		if counted.String() != want || used.String() != "0" {
			t.Errorf("counted %s, used %s; want %s and 0", counted.String(), used.String(), want)
		}
	}
	// The same update again changes nothing.
	mustSucceed(t, c.Update(ctx, quota))
	update := stubapi.Write{Verb: "update", Resource: "resourcequotas"}
	if total, changed := server.Writes()[update], server.Changes()[update]; total != changed+2 {
		t.Errorf("%d updates, of which %d changed the quota; want all but two", total, changed)
	}
}
