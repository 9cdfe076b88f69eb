// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workload/kinds"
)

// object is one of that kind, with the rest in YAML, read as from the API server.
func object(t *testing.T, kind schema.GroupKind, rest string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(rest))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := utilyaml.Unmarshal(raw, &u.Object); err != nil {
		t.Fatal(err)
	}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u.SetGroupVersionKind(kind.WithVersion("v1"))
	return u
}

func gk(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }

// One row of the test for each row of the table, so that none is forgotten.
func TestEachKindIsStoppedAndStarted(t *testing.T) {
	const suspended, going = `spec: {suspend: true}`, `spec: {suspend: false}`
	const none, some = `spec: {replicas: 0}`, `spec: {replicas: 2}`
	const trainingStopped, training = `spec: {runPolicy: {suspend: true}}`, `spec: {runPolicy: {}}`
	tests := map[schema.GroupKind]struct{ stopped, running string }{
		gk("", "ReplicationController"):                        {none, some},
		gk("apps", "Deployment"):                               {none, some},
		gk("apps", "ReplicaSet"):                               {none, some},
		gk("apps", "StatefulSet"):                              {none, `spec: {}`},
		gk("batch", "Job"):                                     {suspended, going},
		gk("batch", "CronJob"):                                 {suspended, `spec: {schedule: "* * * * *"}`},
		gk("jobset.x-k8s.io", "JobSet"):                        {suspended, going},
		gk("leaderworkerset.x-k8s.io", "LeaderWorkerSet"):      {none, some},
		gk("kubeflow.org", "Notebook"):                         {`metadata: {annotations: {kubeflow-resource-stopped: ""}}`, `metadata: {annotations: {other: x}}`},
		gk("kubeflow.org", "Workspace"):                        {`spec: {paused: true}`, `spec: {paused: false}`},
		gk("kubeflow.org", "PyTorchJob"):                       {trainingStopped, training},
		gk("kubeflow.org", "TFJob"):                            {trainingStopped, training},
		gk("kubeflow.org", "XGBoostJob"):                       {trainingStopped, training},
		gk("kubeflow.org", "PaddleJob"):                        {trainingStopped, training},
		gk("kubeflow.org", "JAXJob"):                           {trainingStopped, training},
		gk("kubeflow.org", "MPIJob"):                           {trainingStopped, training},
		gk("trainer.kubeflow.org", "TrainJob"):                 {suspended, going},
		gk("ray.io", "RayCluster"):                             {suspended, going},
		gk("ray.io", "RayJob"):                                 {suspended, going},
		gk("ray.io", "RayService"):                             {suspended, going},
		gk("sparkoperator.k8s.io", "SparkApplication"):         {suspended, going},
		gk("workload.codeflare.dev", "AppWrapper"):             {suspended, going},
		gk("kueue.x-k8s.io", "Workload"):                       {`spec: {active: false}`, `spec: {queueName: q}`},
		gk("workspace.devfile.io", "DevWorkspace"):             {`spec: {started: false}`, `spec: {started: true}`},
		gk("argoproj.io", "Workflow"):                          {`spec: {shutdown: Terminate}`, `spec: {shutdown: Stop}`},
		gk("tekton.dev", "PipelineRun"):                        {`spec: {status: Cancelled}`, `spec: {status: PipelineRunPending}`},
		gk("tekton.dev", "TaskRun"):                            {`spec: {status: TaskRunCancelled}`, `spec: {}`},
		gk("serving.kserve.io", "InferenceService"):            {`metadata: {annotations: {serving.kserve.io/stop: "true"}}`, `metadata: {annotations: {serving.kserve.io/stop: "false"}}`},
		gk("", "Pod"):                                          {`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}`, `status: {phase: Running}`},
		gk("autoscaling", "Scale"):                             {`spec: {}`, some},
		{Group: "example.org", Kind: "UnknownWithSuspend"}:     {suspended, going},
		{Group: "example.org", Kind: "UnknownThatScales"}:      {none, some},
		{Group: "example.org", Kind: "UnknownSuspendedScaled"}: {`spec: {suspend: true, replicas: 3}`, `spec: {suspend: false, replicas: 3}`},
	}
	for kind, tc := range tests {
		t.Run(kind.String(), func(t *testing.T) {
			stopped, running := object(t, kind, tc.stopped), object(t, kind, tc.running)
			if kinds.AsksToRun(stopped) {
				t.Errorf("%s asks to run", tc.stopped)
			}
			if !kinds.AsksToRun(running) {
				t.Errorf("%s does not ask to run", tc.running)
			}
			if !kinds.Starts(stopped, running) {
				t.Error("the change starts it, and is not seen")
			}
			for name, pair := range map[string][2]*unstructured.Unstructured{
				"stopping": {running, stopped}, "leaving it stopped": {stopped, stopped}, "leaving it running": {running, running},
			} {
				if kinds.Starts(pair[0], pair[1]) {
					t.Errorf("%s is taken for a start", name)
				}
			}
		})
	}
	for _, kind := range kinds.All() {
		if _, tried := tests[kind.GroupKind]; !tried && kind.Verb.Form != kinds.FormNever {
			t.Errorf("%s is in the table and not in this test", kind.GroupKind)
		}
	}
}

// Whatever its author writes there, a workload is never taken for stopped that
// its controller would run.
func TestWhatIsNoStopIsNotTakenForOne(t *testing.T) {
	tests := map[string]struct {
		kind schema.GroupKind
		rest string
	}{
		"nothing at all":             {gk("batch", "Job"), `{}`},
		"no spec":                    {gk("batch", "Job"), `status: {active: 1}`},
		"a spec that is a list":      {gk("batch", "Job"), `spec: [suspend]`},
		"a spec that is a word":      {gk("batch", "Job"), `spec: suspend`},
		"suspend as a word":          {gk("batch", "Job"), `spec: {suspend: "true"}`},
		"suspend as an object":       {gk("batch", "Job"), `spec: {suspend: {true: true}}`},
		"suspend as a list":          {gk("batch", "Job"), `spec: {suspend: [true]}`},
		"suspend as null":            {gk("batch", "Job"), `spec: {suspend: null}`},
		"replicas absent":            {gk("apps", "Deployment"), `spec: {}`},
		"replicas as null":           {gk("apps", "Deployment"), `spec: {replicas: null}`},
		"replicas as a word":         {gk("apps", "Deployment"), `spec: {replicas: "0"}`},
		"replicas as a fraction":     {gk("apps", "Deployment"), `spec: {replicas: 0.5}`},
		"replicas as an object":      {gk("apps", "Deployment"), `spec: {replicas: {}}`},
		"an odd number of replicas":  {gk("apps", "Deployment"), `spec: {replicas: 1e300}`},
		"annotations that are none":  {gk("kubeflow.org", "Notebook"), `metadata: {annotations: [kubeflow-resource-stopped]}`},
		"a mark of another sort":     {gk("serving.kserve.io", "InferenceService"), `metadata: {annotations: {serving.kserve.io/stop: true}}`},
		"conditions that are a word": {gk("batch", "Job"), `status: {conditions: Complete}`},
		"conditions of words":        {gk("batch", "Job"), `status: {conditions: [Complete, null, 7]}`},
		"a phase that is a list":     {gk("", "Pod"), `status: {phase: [Succeeded]}`},
		"a condition without a name": {gk("batch", "CronJob"), `status: {conditions: [{status: "True"}, {type: "", status: "False"}]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object(t, tc.kind, tc.rest)
			kind, _ := kinds.Of(tc.kind)
			if !kinds.AsksToRun(o) || kind.HasEnded(o) || kind.IsBusy(o) && name != "no spec" {
				t.Errorf("asks to run: %v, has ended: %v", kinds.AsksToRun(o), kind.HasEnded(o))
			}
			if kinds.Starts(object(t, tc.kind, tc.rest), o) {
				t.Error("no change is taken for a start")
			}
		})
	}
	if kinds.AsksToRun(object(t, gk("apps", "Deployment"), `spec: {replicas: -3}`)) {
		t.Error("fewer than none ask to run")
	}
}

func TestHasEnded(t *testing.T) {
	tests := []struct {
		group, kind, status string
		want                bool
	}{
		{"batch", "Job", `conditions: [{type: Complete, status: "True"}]`, true},
		{"batch", "Job", `conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Failed, status: "True"}]`, true},
		{"batch", "Job", `conditions: [{type: Failed, status: "False"}]`, false},
		{"batch", "Job", `conditions: [{type: Suspended, status: "True"}]`, false},
		{"tekton.dev", "TaskRun", `conditions: [{type: Succeeded, status: Unknown}]`, false},
		{"tekton.dev", "TaskRun", `conditions: [{type: Succeeded, status: "False"}]`, true},
		{"tekton.dev", "TaskRun", `conditions: [{type: Succeeded, status: "True"}]`, true},
		{"kubeflow.org", "PyTorchJob", `conditions: [{type: Running, status: "False"}, {type: Succeeded, status: "True"}]`, true},
		{"ray.io", "RayJob", `jobDeploymentStatus: Complete`, true},
		{"ray.io", "RayJob", `jobDeploymentStatus: Running`, false},
		{"sparkoperator.k8s.io", "SparkApplication", `applicationState: {state: COMPLETED}`, true},
		{"argoproj.io", "Workflow", `phase: Error`, true},
		{"", "Pod", `phase: Failed`, true},
		{"", "Pod", `phase: Pending`, false},
		{"apps", "Deployment", `conditions: [{type: Complete, status: "True"}]`, false},
	}
	for _, tc := range tests {
		kind, _ := kinds.Of(gk(tc.group, tc.kind))
		if got := kind.HasEnded(object(t, kind.GroupKind, "status: {"+tc.status+"}")); got != tc.want {
			t.Errorf("%s %s: %v", tc.kind, tc.status, got)
		}
	}
}

func TestWhatIsNeverTouched(t *testing.T) {
	for _, kind := range []schema.GroupKind{
		gk("", "Node"), gk("", "Namespace"), gk("", "PersistentVolumeClaim"), gk("apps", "DaemonSet"),
		gk("apps", "ControllerRevision"), gk("sluice.dev", "Project"),
		{},
	} {
		if kinds.CanBeStopped(kind) {
			t.Errorf("%s can be stopped", kind)
		}
	}
	for _, kind := range kinds.All() {
		if kinds.CanBeStopped(kind.GroupKind) != (kind.Verb.Form != kinds.FormNever) {
			t.Errorf("%s", kind.GroupKind)
		}
	}
	if !kinds.CanBeStopped(gk("example.org", "Experiment")) {
		t.Error("a kind of somebody's may be one that can be stopped")
	}
}

// The table says of each row what the others rely on.
func TestTableIsWhole(t *testing.T) {
	seen := map[schema.GroupKind]bool{}
	for _, kind := range kinds.All() {
		if seen[kind.GroupKind] {
			t.Errorf("%s is there twice", kind.GroupKind)
		}
		seen[kind.GroupKind] = true
		if kind.Resource == "" || kind.Resource != strings.ToLower(kind.Resource) {
			t.Errorf("%s has the resource %q", kind.GroupKind, kind.Resource)
		}
		needsPath := kind.Verb.Form == kinds.FormField || kind.Verb.Form == kinds.FormMark || kind.Verb.Form == kinds.FormReplicas
		if needsPath != (len(kind.Verb.Path) > 0) {
			t.Errorf("%s: form %s with the path %v", kind.GroupKind, kind.Verb.Form, kind.Verb.Path)
		}
		if (kind.Verb.Form == kinds.FormField) != (kind.Verb.Stop != nil) {
			t.Errorf("%s: form %s with the value %v", kind.GroupKind, kind.Verb.Form, kind.Verb.Stop)
		}
		if got := kind.StartCommand("ns", "x", 1); (got == "") != (kind.Verb.Final || kind.Verb.Form == kinds.FormNever) {
			t.Errorf("%s: started by %q", kind.GroupKind, got)
		}
	}
}
