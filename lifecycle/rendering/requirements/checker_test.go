// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies/engine"
)

// fakeReader has objects by "Kind namespace/name", as YAML; an error in an object's
// place is what reading it gives.
type fakeReader struct {
	client.Reader
	tb      testing.TB
	objects map[string]any
	reads   []string
}

func (c *fakeReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := into.GetObjectKind().GroupVersionKind()
	name := strings.TrimPrefix(key.String(), "/")
	c.reads = append(c.reads, kind.Kind+" "+name)
	switch found := c.objects[kind.Kind+" "+name].(type) {
	case error:
		return found
	case string:
		object := into.(*unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(found), &object.Object); err != nil {
			c.tb.Fatal(err)
		}
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}, key.Name)
}

// List returns the objects of a kind, in no order, unless "Kind *" is an error.
func (c *fakeReader) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	kind := strings.TrimSuffix(into.GetObjectKind().GroupVersionKind().Kind, "List")
	c.reads = append(c.reads, kind)
	if err, failed := c.objects[kind+" *"].(error); failed {
		return err
	}
	list := into.(*unstructured.UnstructuredList)
	for name, found := range c.objects {
		if text, ok := found.(string); ok && strings.HasPrefix(name, kind+" ") {
			object := unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
				c.tb.Fatal(err)
			}
			object.SetName(strings.TrimPrefix(name, kind+" "))
			list.Items = append(list.Items, object)
		}
	}
	return nil
}

func newRESTMapper(*testing.T) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "kai.scheduler", Version: "v1", Kind: "Config"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "kai.scheduler", Version: "v1", Kind: "SchedulingShard"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "kai.scheduler", Version: "v1", Kind: "Hidden"}, meta.RESTScopeRoot)
	mapper.Add(crdKind, meta.RESTScopeRoot)
	return mapper
}

const (
	kueueConfig = `{data: {controller_manager_config.yaml: "fairSharing: {enable: true, weight: 2}\nempty:\nlist: [job, pod]\n"}}`
	kaiConfig   = `{spec: {global: {schedulerName: mine, blank: "", count: 3, long: ` + "LONG" + `}}}`
	cohortCRD   = `{spec: {versions: [{name: v1alpha1, served: false}, {name: v1beta1, served: true}, {name: v1beta2, served: true}]},
  status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "True"}]}}`
	rejectedCRD = `{spec: {versions: [{name: v1, served: true}]}, status: {conditions: [{type: Established, status: "False", message: the names are taken}]}}`
	unservedCRD = `{spec: {versions: [{name: v1, served: false}, 7]}, status: nonsense}`
)

func newFakeReader(tb testing.TB) *fakeReader {
	return &fakeReader{tb: tb, objects: map[string]any{
		"ConfigMap kueue-system/kueue-manager-config":           kueueConfig,
		"ConfigMap kueue-system/broken":                         `{data: {x: "a: [1"}}`,
		"Config kai-config":                                     strings.ReplaceAll(kaiConfig, "LONG", strings.Repeat("l", 2000)),
		"CustomResourceDefinition clusterqueues.kueue.x-k8s.io": cohortCRD,
		"CustomResourceDefinition rejected.example.org":         rejectedCRD,
		"CustomResourceDefinition unserved.example.org":         unservedCRD,
		"CustomResourceDefinition secret.example.org":           forbiddenError("customresourcedefinitions", "secret.example.org"),
		"ConfigMap kueue-system/secret":                         forbiddenError("configmaps", "secret"),
		"SchedulingShard default":                               `{spec: {}}`,
		"SchedulingShard z":                                     `{spec: {partitionLabelValue: a100, args: {update-pod-eviction-condition: "false"}}}`,
		"SchedulingShard own-name":                              `{spec: {partitionLabelValue: a100, args: {update-pod-eviction-condition: "true"}}}`,
		"SchedulingShard odd":                                   `{spec: {partitionLabelValue: 7}}`,
		"Hidden *":                                              forbiddenError("hiddens", ""),
		"ConfigMap kueue-system/unreachable":                    errors.New("connection refused"),
	}}
}

func forbiddenError(resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, fmt.Errorf("User %q cannot get resource %q", "lifecycle", resource))
}

func kueueSetting(name string, path ...string) *engine.Setting {
	return &engine.Setting{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kueue-system", Name: name, Path: append([]string{"data"}, path...)}
}

func fairSharingSetting(path ...string) *engine.Setting {
	return kueueSetting("kueue-manager-config", append([]string{"controller_manager_config.yaml"}, path...)...)
}

func kaiSetting(path ...string) *engine.Setting {
	return &engine.Setting{APIVersion: "kai.scheduler/v1", Kind: "Config", Name: "kai-config", Path: append([]string{"spec", "global"}, path...)}
}

// shardSetting is an argument of the scheduler of the shard with this partition label value, as KAI-Scheduler
// 0.17.0 has it in pkg/apis/kai/v1/schedulingshard_types.go.
func shardSetting(kind, partition string) *engine.Setting {
	return &engine.Setting{
		APIVersion: "kai.scheduler/v1", Kind: kind, Where: &engine.Where{Path: []string{"spec", "partitionLabelValue"}, Is: partition},
		Path: []string{"spec", "args", "update-pod-eviction-condition"},
	}
}

// formatMissing is what is missing of one policy's requirements.
func formatMissing(found Findings) string {
	return strings.ReplaceAll(strings.Join(found.Messages(), "; "), " (policy it)", "")
}

func TestCheckReportsMissingRequirements(t *testing.T) {
	for name, tt := range map[string]struct {
		requires engine.Requirement
		want     string
	}{
		"a definition":                 {engine.Requirement{CRD: "clusterqueues.kueue.x-k8s.io"}, ""},
		"a version":                    {engine.Requirement{CRD: "clusterqueues.kueue.x-k8s.io", Version: "v1beta2"}, ""},
		"a version that is not served": {engine.Requirement{CRD: "clusterqueues.kueue.x-k8s.io", Version: "v1alpha1"}, "the custom resource definition clusterqueues.kueue.x-k8s.io does not serve v1alpha1, but v1beta1, v1beta2: fix it"},
		"the same, optional":           {engine.Requirement{CRD: "clusterqueues.kueue.x-k8s.io", Version: "v2", Optional: true}, "the custom resource definition clusterqueues.kueue.x-k8s.io does not serve v2, but v1beta1, v1beta2: fix it"},
		"a missing definition":         {engine.Requirement{CRD: "gone.example.org"}, "the custom resource definition gone.example.org does not exist: fix it"},
		"optional":                     {engine.Requirement{CRD: "gone.example.org", Optional: true}, ""},
		"one that is not established":  {engine.Requirement{CRD: "rejected.example.org"}, "the custom resource definition rejected.example.org is not established: the names are taken: fix it"},
		"one that serves nothing":      {engine.Requirement{CRD: "unserved.example.org"}, "the custom resource definition unserved.example.org serves no version: fix it"},
		"one without the right to read it": {
			engine.Requirement{CRD: "secret.example.org", Optional: true},
			`customresourcedefinitions "secret.example.org" is forbidden: User "lifecycle" cannot get resource "customresourcedefinitions": ` +
				`give Sluice's lifecycle controller the right to get customresourcedefinitions.apiextensions.k8s.io/secret.example.org`,
		},

		"a setting":                  {engine.Requirement{Setting: fairSharingSetting("fairSharing")}, ""},
		"a setting that is right":    {engine.Requirement{Setting: fairSharingSetting("fairSharing", "weight"), Is: int64(2), HasIs: true}, ""},
		"a setting that is wrong":    {engine.Requirement{Setting: fairSharingSetting("fairSharing", "enable"), Is: false, HasIs: true}, "data[controller_manager_config.yaml].fairSharing.enable of ConfigMap kueue-system/kueue-manager-config is true and must be false: fix it"},
		"wrong and optional":         {engine.Requirement{Setting: fairSharingSetting("fairSharing"), Is: "on", HasIs: true, Optional: true}, `data[controller_manager_config.yaml].fairSharing of ConfigMap kueue-system/kueue-manager-config is an object and must be "on": fix it`},
		"a setting that is empty":    {engine.Requirement{Setting: fairSharingSetting("empty")}, "data[controller_manager_config.yaml].empty of ConfigMap kueue-system/kueue-manager-config is not set: fix it"},
		"one that must not be there": {engine.Requirement{Setting: fairSharingSetting("empty"), HasIs: true}, ""},
		"one that is missing":        {engine.Requirement{Setting: fairSharingSetting("other", "0"), Is: []any{"x"}, HasIs: true}, `data[controller_manager_config.yaml].other.0 of ConfigMap kueue-system/kueue-manager-config is not set and must have ["x"]: fix it`},
		"a list that has it":         {engine.Requirement{Setting: fairSharingSetting("list"), Is: []any{"pod"}, HasIs: true}, ""},
		"a list that lacks it":       {engine.Requirement{Setting: fairSharingSetting("list"), Is: []any{"pod", "jobset"}, HasIs: true}, `data[controller_manager_config.yaml].list of ConfigMap kueue-system/kueue-manager-config is ["job", "pod"] and must have ["pod","jobset"]: fix it`},

		"of a shard by its label, the first by name": {engine.Requirement{Setting: shardSetting("SchedulingShard", "a100"), Is: "true", HasIs: true}, ""},
		"of the shard without a label":               {engine.Requirement{Setting: shardSetting("SchedulingShard", ""), Is: "true", HasIs: true}, `spec.args.update-pod-eviction-condition of the SchedulingShard whose spec.partitionLabelValue is "" is not set and must be "true": fix it`},
		"of no shard":                                {engine.Requirement{Setting: shardSetting("SchedulingShard", "h100"), Is: "true", HasIs: true}, `the SchedulingShard whose spec.partitionLabelValue is "h100" does not exist: fix it`},
		"without the right to list":                  {engine.Requirement{Setting: shardSetting("Hidden", "a100")}, `hiddens is forbidden: User "lifecycle" cannot get resource "hiddens": give Sluice's lifecycle controller the right to list hiddens.kai.scheduler`},
		"in a missing object":                        {engine.Requirement{Setting: kueueSetting("gone", "x")}, "ConfigMap kueue-system/gone does not exist: fix it"},
		"the same, and optional":                     {engine.Requirement{Setting: kueueSetting("gone", "x"), Optional: true}, ""},
		"in broken YAML":                             {engine.Requirement{Setting: kueueSetting("broken", "x", "a")}, "ConfigMap kueue-system/broken: data.x is not YAML: yaml: line 1: did not find expected ',' or ']': fix it"},
		"without the right to read":                  {engine.Requirement{Setting: kueueSetting("secret", "x"), Optional: true}, `configmaps "secret" is forbidden: User "lifecycle" cannot get resource "configmaps": give Sluice's lifecycle controller the right to get configmaps/secret`},
		"of a kind that is not known":                {engine.Requirement{Setting: &engine.Setting{APIVersion: "volcano.sh/v1", Kind: "Queue", Name: "x", Path: []string{"a"}}}, "the cluster has no kind Queue in volcano.sh/v1: fix it"},
		"the same kind, optional":                    {engine.Requirement{Setting: &engine.Setting{APIVersion: "kai.scheduler/v2", Kind: "Config", Name: "x", Path: []string{"a"}}, Optional: true}, ""},
		"without its namespace":                      {engine.Requirement{Setting: &engine.Setting{APIVersion: "v1", Kind: "ConfigMap", Name: "x", Path: []string{"a"}}}, "a ConfigMap has a namespace, and the policy names none: correct the policy"},
		"with a namespace too many":                  {engine.Requirement{Setting: &engine.Setting{APIVersion: "kai.scheduler/v1", Kind: "Config", Namespace: "kai", Name: "x", Path: []string{"a"}}}, "a Config has no namespace, and the policy names kai: correct the policy"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.requires.Policy, tt.requires.Fix = "it", "fix it"
			found, err := NewChecker(newFakeReader(t), newRESTMapper(t)).Check(t.Context(), []engine.Requirement{tt.requires}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := formatMissing(found)
			if got != tt.want || found.Settings != nil {
				t.Errorf("\n got %s\nwant %s\nsettings %v", got, tt.want, found.Settings)
			}
		})
	}
}

func TestSettingsFallBackToDefault(t *testing.T) {
	const mended = `: correct it, or remove it, so that policies use "d"`
	for name, tt := range map[string]struct {
		setting       *engine.Setting
		allowEmpty    bool
		known         string
		want, missing string
	}{
		"what stands in a shard":             {setting: shardSetting("SchedulingShard", "a100"), want: "true"},
		"no shard":                           {setting: shardSetting("SchedulingShard", "h100"), known: "old", want: "d"},
		"what stands there":                  {setting: kaiSetting("schedulerName"), known: "old", want: "mine"},
		"nothing stands there":               {setting: kaiSetting("other"), known: "old", want: "d"},
		"an empty text":                      {setting: kaiSetting("blank"), want: "d"},
		"an empty text that is a value":      {setting: kaiSetting("blank"), allowEmpty: true, known: "old", want: ""},
		"nothing, where it may be empty":     {setting: kaiSetting("other"), allowEmpty: true, known: "old", want: "d"},
		"no object":                          {setting: kueueSetting("gone", "x"), known: "old", want: "d"},
		"no kind":                            {setting: &engine.Setting{APIVersion: "x.y/v1", Kind: "Z", Name: "z", Path: []string{"a"}}, want: "d"},
		"a number":                           {setting: kaiSetting("count"), want: "d", missing: "spec.global.count of Config kai-config is 3 and must be a text of at most 1024 bytes" + mended},
		"a number where there was a text":    {setting: kaiSetting("count"), known: "old", want: "old", missing: "spec.global.count of Config kai-config is 3 and must be a text of at most 1024 bytes" + mended},
		"an object":                          {setting: kaiSetting(), want: "d", missing: "spec.global of Config kai-config is an object and must be a text of at most 1024 bytes" + mended},
		"a book":                             {setting: kaiSetting("long"), want: "d", missing: `spec.global.long of Config kai-config is "` + strings.Repeat("l", 200) + `…" and must be a text of at most 1024 bytes` + mended},
		"broken YAML where there was a text": {setting: kueueSetting("broken", "x", "a"), known: "old", want: "old", missing: "ConfigMap kueue-system/broken: data.x is not YAML: yaml: line 1: did not find expected ',' or ']'" + mended},
		"without the right to read": {
			setting: kueueSetting("secret", "x"), known: "old", want: "old",
			missing: `configmaps "secret" is forbidden: User "lifecycle" cannot get resource "configmaps": give Sluice's lifecycle controller the right to get configmaps/secret`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			known := map[string]string{}
			if tt.known != "" {
				known["key"] = tt.known
			}
			requires := []engine.Requirement{{Policy: "it", Setting: tt.setting, As: "key", Default: "d", AllowEmpty: tt.allowEmpty}}
			found, err := NewChecker(newFakeReader(t), newRESTMapper(t)).Check(t.Context(), requires, known)
			if err != nil {
				t.Fatal(err)
			}
			want := Findings{Settings: map[string]string{"key": tt.want}}
			got := formatMissing(found)
			if diff := cmp.Diff(want.Settings, found.Settings); diff != "" || got != tt.missing {
				t.Errorf("settings (-want +got):\n%s\n got %s\nwant %s", diff, got, tt.missing)
			}
		})
	}
}

func TestSettingNamesAreUniqueAndLimited(t *testing.T) {
	requires := []engine.Requirement{
		{Policy: "a", Setting: kaiSetting("schedulerName"), As: "key", Default: "d"},
		{Policy: "b", Setting: kaiSetting("other"), As: "key", Default: "e"},
	}
	for i := range 40 {
		requires = append(requires, engine.Requirement{Policy: "c", Setting: kaiSetting("other"), As: fmt.Sprintf("key%d", i)})
	}
	found, err := NewChecker(newFakeReader(t), newRESTMapper(t)).Check(t.Context(), requires, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Settings) != 32 || found.Settings["key"] != "mine" || len(found.Missing) != 10 {
		t.Errorf("%d settings, key is %q; %d missing", len(found.Settings), found.Settings["key"], len(found.Missing))
	}
	const want = "policy a has a setting key, too: give it another name in one of the two (policy b)"
	if got := found.Messages()[0]; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestMessagesAreGroupedByFix(t *testing.T) {
	found := Findings{Missing: []Missing{
		{"kueue", "a is missing", "install Kueue", false},
		{"kueue", "x is off", "turn it on", true},
		{"kueue", "b is missing", "install Kueue", false},
		{"kai", "a is missing", "install Kueue", false},
	}}
	want := []string{"a is missing, b is missing: install Kueue (policy kueue)", "x is off: turn it on (policy kueue)", "a is missing: install Kueue (policy kai)"}
	if diff := cmp.Diff(want, found.Messages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if advised := (Findings{Missing: found.Missing[1:2]}); !found.IsBlocking() || advised.IsBlocking() {
		t.Errorf("blocking: all %t, the advisory one %t", found.IsBlocking(), advised.IsBlocking())
	}
}

func TestCheckerCachesReadsButNotErrors(t *testing.T) {
	c := newFakeReader(t)
	checker := NewChecker(c, newRESTMapper(t))
	requires := []engine.Requirement{
		{CRD: "gone.example.org"},
		{CRD: "gone.example.org", Optional: true},
		{Setting: fairSharingSetting("fairSharing")},
		{Setting: fairSharingSetting("fairSharing", "weight"), As: "x"},
		{Setting: fairSharingSetting("empty"), HasIs: true},
	}
	for range 3 {
		if _, err := checker.Check(t.Context(), requires, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"CustomResourceDefinition gone.example.org", "ConfigMap kueue-system/kueue-manager-config"}, c.reads); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	unreachable := append(requires, engine.Requirement{Setting: kueueSetting("unreachable", "x")})
	for range 2 {
		found, err := checker.Check(t.Context(), unreachable, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "read ConfigMap kueue-system/unreachable: ") || found.Missing != nil {
			t.Errorf("of an unreachable object: %v, %v", found, err)
		}
	}
	if len(c.reads) != 4 {
		t.Errorf("reads after two errors: %q", c.reads)
	}
}
