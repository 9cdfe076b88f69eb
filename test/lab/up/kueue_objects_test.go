// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"encoding/base64"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kueueModuleFiles has an object of each kind that kueueObjects changes, and of others.
var kueueModuleFiles = fstest.MapFS{
	"default/kustomization.yaml": {Data: []byte("resources: [all.yaml]\n")},
	"default/all.yaml": {Data: []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: converted}
spec: {group: kueue.x-k8s.io, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: s, namespace: n, path: /convert}}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plain}
spec: {group: kueue.x-k8s.io}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kueue-manager-role}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: visibility, namespace: kube-system}
roleRef: {kind: Role, name: x, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data: {controller_manager_config.yaml: theirs}
---
apiVersion: v1
kind: Secret
metadata: {name: kueue-webhook-server-cert, namespace: kueue-system}
---
apiVersion: v1
kind: Service
metadata: {name: kueue-webhook-service, namespace: kueue-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kueue-controller-manager, namespace: kueue-system}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta2.visibility.kueue.x-k8s.io}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
  - name: mjob.kb.io
    failurePolicy: Fail
    clientConfig: {service: {name: s, namespace: n, path: /job}}
    rules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]
  - name: mworkload.kb.io
    clientConfig: {service: {name: s, namespace: n, path: /workload}}
    rules: [{apiGroups: [kueue.x-k8s.io], apiVersions: [v1beta2], operations: [CREATE], resources: [workloads]}]
`)},
}

func TestKueueObjects(t *testing.T) {
	certificates := kueueCertificates{"ca.crt": []byte("authority"), "tls.key": []byte("key")}
	objects, err := kueueObjects(kueueModuleFiles, "https://127.0.0.1:1", certificates, []byte("ours"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, object := range objects {
		got[object.GetKind()+" "+object.GetName()] = object.Object
	}
	encoded := base64.StdEncoding.EncodeToString
	want := map[string]any{}
	for name, text := range map[string]string{
		"CustomResourceDefinition converted": `{group: kueue.x-k8s.io, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1],
			clientConfig: {url: "https://127.0.0.1:1/convert", caBundle: ` + encoded([]byte("authority")) + `}}}}`,
		"CustomResourceDefinition plain": `{group: kueue.x-k8s.io}`,
	} {
		kind, own, _ := strings.Cut(name, " ")
		want[name] = map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       kind,
			"metadata":   map[string]any{"name": own},
			"spec":       decodeYAML(t, text),
		}
	}
	want["ClusterRole kueue-manager-role"] = decodeYAML(
		t,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: kueue-manager-role},
		rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
	)
	want["ConfigMap kueue-manager-config"] = decodeYAML(
		t,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: kueue-manager-config, namespace: kueue-system},
		data: {controller_manager_config.yaml: ours}}`,
	)
	want["Secret kueue-webhook-server-cert"] = decodeYAML(
		t,
		`{apiVersion: v1, kind: Secret, metadata: {name: kueue-webhook-server-cert, namespace: kueue-system},
		data: {ca.crt: `+encoded([]byte("authority"))+`, tls.key: `+encoded([]byte("key"))+`}}`,
	)
	want["MutatingWebhookConfiguration kueue-mutating-webhook-configuration"] = decodeYAML(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
  - name: mjob.kb.io
    failurePolicy: Fail
    clientConfig: {url: "https://127.0.0.1:1/job", caBundle: `+encoded([]byte("authority"))+`}
    namespaceSelector: {matchExpressions: [{key: sluice.dev/project, operator: Exists}]}
    rules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]
  - name: mworkload.kb.io
    clientConfig: {url: "https://127.0.0.1:1/workload", caBundle: `+encoded([]byte("authority"))+`}
    rules: [{apiGroups: [kueue.x-k8s.io], apiVersions: [v1beta2], operations: [CREATE], resources: [workloads]}]
`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestKueueObjectsRejectsUnexpectedManifests(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"no path": {
			"{kind: MutatingWebhookConfiguration, metadata: {name: a}, webhooks: [{clientConfig: {}}]}",
			"webhooks[0]: clientConfig.service.path is missing",
		},
		"no object": {"{kind: ValidatingWebhookConfiguration, metadata: {name: a}, webhooks: [7]}", "webhooks[0] is not an object"},
		"no list":   {"{kind: ValidatingWebhookConfiguration, metadata: {name: a}, webhooks: x}", "webhooks"},
		"no service": {
			"{kind: CustomResourceDefinition, metadata: {name: a}, spec: {conversion: {webhook: {clientConfig: {url: x}}}}}",
			"path is missing",
		},
		"not a field": {"{kind: CustomResourceDefinition, metadata: {name: a}, spec: {conversion: 7}}", "conversion"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := adaptKueueObject(&unstructured.Unstructured{Object: decodeYAML(t, tc.object)}, "https://127.0.0.1:1", kueueCertificates{}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func decodeYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &object); err != nil {
		t.Fatal(err)
	}
	return object
}
