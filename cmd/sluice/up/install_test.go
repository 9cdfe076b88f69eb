// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
)

// The cluster is ready only when all admission policies are in force.
func TestProbesLastAdmissionPolicy(t *testing.T) {
	policies, err := admissionpolicy.LoadPolicies(manifests.Files, true)
	if err != nil {
		t.Fatal(err)
	}
	if last := policies[len(policies)-1].GetName(); last != lastAdmissionPolicy {
		t.Errorf("lifecycle applies %s last, and the probe is of %s", last, lastAdmissionPolicy)
	}
}

func TestReplaceServiceWithURL(t *testing.T) {
	const configuration = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\n"
	tests := map[string]struct {
		before, want string // no want: an error
	}{
		"a service becomes a URL, all else stays": {
			configuration + "webhooks: [{name: x, failurePolicy: Fail, clientConfig: {caBundle: old, service: {name: s, namespace: n, path: /p}}}]\n",
			configuration + "webhooks: [{name: x, failurePolicy: Fail, clientConfig: {url: 'https://127.0.0.1:1/p'}}]\n",
		},
		"each of several": {
			configuration + "webhooks: [{clientConfig: {service: {path: /p}}}, {clientConfig: {service: {path: /q}}}]\n",
			configuration + "webhooks: [{clientConfig: {url: 'https://127.0.0.1:1/p'}}, {clientConfig: {url: 'https://127.0.0.1:1/q'}}]\n",
		},
		"another kind is left alone": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nwebhooks: mine\n",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nwebhooks: mine\n",
		},
		"a policy has no webhooks": {
			"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n",
			"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n",
		},
		"without a path":        {configuration + "webhooks: [{clientConfig: {service: {name: s}}}]\n", ""},
		"webhooks that are not": {configuration + "webhooks: [7]\n", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := decodeObject(t, tc.before)
			err := replaceServiceWithURL(got, "https://127.0.0.1:1")
			if tc.want == "" {
				if err == nil {
					t.Errorf("accepted as %v", got.Object)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decodeObject(t, tc.want).Object, got.Object); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReplaceServiceWithURLInManifests(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := replaceServiceWithURL(object, "https://127.0.0.1:1"); err != nil {
			t.Error(err)
		}
	}
}

func decodeObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := decodeManifests([]byte(text))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v, of %s", len(objects), err, text)
	}
	return objects[0]
}
