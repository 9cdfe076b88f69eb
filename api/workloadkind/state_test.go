// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workloadkind"
)

// newObject is one of that kind, with the rest in YAML, read as from the API server.
func newObject(t *testing.T, kind schema.GroupKind, rest string) *unstructured.Unstructured {
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

func groupKind(group, kind string) schema.GroupKind {
	return schema.GroupKind{Group: group, Kind: kind}
}

// One row of the test for each row of the table, so that none is forgotten.
func TestEveryKindStopsAndStarts(t *testing.T) {
	const suspended, going = `spec: {suspend: true}`, `spec: {suspend: false}`
	const none, some = `spec: {replicas: 0}`, `spec: {replicas: 2}`
	const trainingStopped, training = `spec: {runPolicy: {suspend: true}}`, `spec: {runPolicy: {}}`
	tests := map[schema.GroupKind]struct{ stopped, running string }{
		groupKind("", "ReplicationController"):                   {none, some},
		groupKind("apps", "Deployment"):                          {none, some},
		groupKind("apps", "ReplicaSet"):                          {none, some},
		groupKind("apps", "StatefulSet"):                         {none, `spec: {}`},
		groupKind("batch", "Job"):                                {suspended, going},
		groupKind("batch", "CronJob"):                            {suspended, `spec: {schedule: "* * * * *"}`},
		groupKind("jobset.x-k8s.io", "JobSet"):                   {suspended, going},
		groupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): {none, some},
		groupKind("kubeflow.org", "Notebook"):                    {`metadata: {annotations: {kubeflow-resource-stopped: ""}}`, `metadata: {annotations: {other: x}}`},
		groupKind("kubeflow.org", "Workspace"):                   {`spec: {paused: true}`, `spec: {paused: false}`},
		groupKind("kubeflow.org", "PyTorchJob"):                  {trainingStopped, training},
		groupKind("kubeflow.org", "TFJob"):                       {trainingStopped, training},
		groupKind("kubeflow.org", "XGBoostJob"):                  {trainingStopped, training},
		groupKind("kubeflow.org", "PaddleJob"):                   {trainingStopped, training},
		groupKind("kubeflow.org", "JAXJob"):                      {trainingStopped, training},
		groupKind("kubeflow.org", "MPIJob"):                      {trainingStopped, training},
		groupKind("trainer.kubeflow.org", "TrainJob"):            {suspended, going},
		groupKind("ray.io", "RayCluster"):                        {suspended, going},
		groupKind("ray.io", "RayJob"):                            {suspended, going},
		groupKind("ray.io", "RayService"):                        {suspended, going},
		groupKind("sparkoperator.k8s.io", "SparkApplication"):    {suspended, going},
		groupKind("workload.codeflare.dev", "AppWrapper"):        {suspended, going},
		groupKind("kueue.x-k8s.io", "Workload"):                  {`spec: {active: false}`, `spec: {queueName: q}`},
		groupKind("workspace.devfile.io", "DevWorkspace"):        {`spec: {started: false}`, `spec: {started: true}`},
		groupKind("argoproj.io", "Workflow"):                     {`spec: {shutdown: Terminate}`, `spec: {shutdown: Stop}`},
		groupKind("tekton.dev", "PipelineRun"):                   {`spec: {status: Cancelled}`, `spec: {status: PipelineRunPending}`},
		groupKind("tekton.dev", "TaskRun"):                       {`spec: {status: TaskRunCancelled}`, `spec: {}`},
		groupKind("serving.kserve.io", "InferenceService"):       {`metadata: {annotations: {serving.kserve.io/stop: "true"}}`, `metadata: {annotations: {serving.kserve.io/stop: "false"}}`},
		groupKind("", "Pod"):                                     {`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}`, `status: {phase: Running}`},
		groupKind("autoscaling", "Scale"):                        {`spec: {}`, some},
		{Group: "example.org", Kind: "UnknownWithSuspend"}:       {suspended, going},
		{Group: "example.org", Kind: "UnknownThatScales"}:        {none, some},
		{Group: "example.org", Kind: "UnknownSuspendedScaled"}:   {`spec: {suspend: true, replicas: 3}`, `spec: {suspend: false, replicas: 3}`},
	}
	for kind, tc := range tests {
		t.Run(kind.String(), func(t *testing.T) {
			stopped, running := newObject(t, kind, tc.stopped), newObject(t, kind, tc.running)
			if workloadkind.RequestsPods(stopped) {
				t.Errorf("%s requests pods", tc.stopped)
			}
			if !workloadkind.RequestsPods(running) {
				t.Errorf("%s does not ask to run", tc.running)
			}
			if !workloadkind.StartsWorkload(stopped, running) {
				t.Error("the change starts it, and is not seen")
			}
			for name, pair := range map[string][2]*unstructured.Unstructured{
				"stopping": {running, stopped}, "leaving it stopped": {stopped, stopped}, "leaving it running": {running, running},
			} {
				if workloadkind.StartsWorkload(pair[0], pair[1]) {
					t.Errorf("%s is taken for a start", name)
				}
			}
		})
	}
	for _, kind := range workloadkind.All() {
		if _, tried := tests[kind.GroupKind]; !tried && kind.StopAction.Method != workloadkind.StopNever {
			t.Errorf("%s is in the table and not in this test", kind.GroupKind)
		}
	}
}

// No value that a user writes makes a workload count as stopped that its controller would run.
func TestRequestsPodsOfUnstoppedObjects(t *testing.T) {
	tests := map[string]struct {
		kind schema.GroupKind
		rest string
	}{
		"nothing at all":             {groupKind("batch", "Job"), `{}`},
		"no spec":                    {groupKind("batch", "Job"), `status: {active: 1}`},
		"a spec that is a list":      {groupKind("batch", "Job"), `spec: [suspend]`},
		"a spec that is a word":      {groupKind("batch", "Job"), `spec: suspend`},
		"suspend as a word":          {groupKind("batch", "Job"), `spec: {suspend: "true"}`},
		"suspend as an object":       {groupKind("batch", "Job"), `spec: {suspend: {true: true}}`},
		"suspend as a list":          {groupKind("batch", "Job"), `spec: {suspend: [true]}`},
		"suspend as null":            {groupKind("batch", "Job"), `spec: {suspend: null}`},
		"replicas absent":            {groupKind("apps", "Deployment"), `spec: {}`},
		"replicas as null":           {groupKind("apps", "Deployment"), `spec: {replicas: null}`},
		"replicas as a word":         {groupKind("apps", "Deployment"), `spec: {replicas: "0"}`},
		"replicas as a fraction":     {groupKind("apps", "Deployment"), `spec: {replicas: 0.5}`},
		"replicas as an object":      {groupKind("apps", "Deployment"), `spec: {replicas: {}}`},
		"an odd number of replicas":  {groupKind("apps", "Deployment"), `spec: {replicas: 1e300}`},
		"annotations that are none":  {groupKind("kubeflow.org", "Notebook"), `metadata: {annotations: [kubeflow-resource-stopped]}`},
		"a mark of another sort":     {groupKind("serving.kserve.io", "InferenceService"), `metadata: {annotations: {serving.kserve.io/stop: true}}`},
		"conditions that are a word": {groupKind("batch", "Job"), `status: {conditions: Complete}`},
		"conditions of words":        {groupKind("batch", "Job"), `status: {conditions: [Complete, null, 7]}`},
		"a phase that is a list":     {groupKind("", "Pod"), `status: {phase: [Succeeded]}`},
		"a condition without a name": {groupKind("batch", "CronJob"), `status: {conditions: [{status: "True"}, {type: "", status: "False"}]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := newObject(t, tc.kind, tc.rest)
			kind, _ := workloadkind.Lookup(tc.kind)
			if !workloadkind.RequestsPods(o) || kind.IsFinished(o) || kind.HasActivePods(o) && name != "no spec" {
				t.Errorf("requests pods: %v, has ended: %v", workloadkind.RequestsPods(o), kind.IsFinished(o))
			}
			if workloadkind.StartsWorkload(newObject(t, tc.kind, tc.rest), o) {
				t.Error("no change is taken for a start")
			}
		})
	}
	if workloadkind.RequestsPods(newObject(t, groupKind("apps", "Deployment"), `spec: {replicas: -3}`)) {
		t.Error("fewer than none ask to run")
	}
}

func TestRequestsMorePods(t *testing.T) {
	const one = "template: {spec: {containers: [{name: main}]}}"
	for name, tc := range map[string]struct {
		kind          schema.GroupKind
		before, after string
		more          bool
	}{
		"a Deployment is scaled up":        {groupKind("apps", "Deployment"), "spec: {replicas: 2, " + one + "}", "spec: {replicas: 3, " + one + "}", true},
		"it is scaled down":                {groupKind("apps", "Deployment"), "spec: {replicas: 3, " + one + "}", "spec: {replicas: 2, " + one + "}", false},
		"the default of one":               {groupKind("apps", "Deployment"), "spec: {" + one + "}", "spec: {replicas: 1, " + one + "}", false},
		"from nothing":                     {groupKind("apps", "Deployment"), "spec: {replicas: 0, " + one + "}", "spec: {" + one + "}", true},
		"more pods of a Job at once":       {groupKind("batch", "Job"), "spec: {parallelism: 1, " + one + "}", "spec: {parallelism: 2, " + one + "}", true},
		"more completions":                 {groupKind("batch", "Job"), "spec: {completions: 1, " + one + "}", "spec: {completions: 9, " + one + "}", false},
		"a suspended Job is resumed":       {groupKind("batch", "Job"), "spec: {suspend: true, " + one + "}", "spec: {suspend: false, " + one + "}", true},
		"a suspended Job gets more":        {groupKind("batch", "Job"), "spec: {suspend: true, " + one + "}", "spec: {suspend: true, parallelism: 5, " + one + "}", false},
		"more workers":                     {groupKind("kubeflow.org", "PyTorchJob"), "spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, " + one + "}}}", "spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, " + one + "}}}", true},
		"workers instead of masters":       {groupKind("kubeflow.org", "PyTorchJob"), "spec: {pytorchReplicaSpecs: {Master: {replicas: 2, " + one + "}}}", "spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, " + one + "}}}", false},
		"a second group of workers":        {groupKind("ray.io", "RayCluster"), "spec: {headGroupSpec: {" + one + "}}", "spec: {headGroupSpec: {" + one + "}, workerGroupSpecs: [{replicas: 1, " + one + "}]}", true},
		"the size of a group":              {groupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), "spec: {replicas: 1, leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {}}}}", "spec: {replicas: 1, leaderWorkerTemplate: {size: 3, workerTemplate: {spec: {}}}}", true},
		"a Scale":                          {groupKind("autoscaling", "Scale"), "spec: {replicas: 1}", "spec: {replicas: 2}", true},
		"a Scale to nothing":               {groupKind("autoscaling", "Scale"), "spec: {replicas: 1}", "spec: {}", false},
		"an unknown kind":                  {groupKind("example.org", "Farm"), "spec: {replicas: 1}", "spec: {replicas: 2}", true},
		"so many that a product overflows": {groupKind("batch", "Job"), "spec: {parallelism: 1, " + one + "}", "spec: {parallelism: 9223372036854775807, " + one + "}", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := workloadkind.RequestsMorePods(newObject(t, tc.kind, tc.before), newObject(t, tc.kind, tc.after)); got != tc.more {
				t.Errorf("got %v, want %v", got, tc.more)
			}
		})
	}
}

func TestIsFinished(t *testing.T) {
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
		kind, _ := workloadkind.Lookup(groupKind(tc.group, tc.kind))
		if got := kind.IsFinished(newObject(t, kind.GroupKind, "status: {"+tc.status+"}")); got != tc.want {
			t.Errorf("%s %s: %v", tc.kind, tc.status, got)
		}
	}
}

// Guards invariant 4: a forged reference to a built-in workload does not lead to it.
func TestMayControl(t *testing.T) {
	pod, job, replicaSet := groupKind("", "Pod"), groupKind("batch", "Job"), groupKind("apps", "ReplicaSet")
	for _, pair := range [][2]schema.GroupKind{
		{job, pod},
		{replicaSet, pod},
		{groupKind("apps", "Deployment"), replicaSet},
		{groupKind("batch", "CronJob"), job},
		{pod, pod},
		{pod, groupKind("apps", "StatefulSet")},
		{job, groupKind("kueue.x-k8s.io", "Workload")},
		{groupKind("jobset.x-k8s.io", "JobSet"), job},
		{groupKind("", "Node"), pod},
	} {
		if !workloadkind.MayControl(pair[0], pair[1]) {
			t.Errorf("%s does not control %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]schema.GroupKind{{job, job}, {replicaSet, replicaSet}, {groupKind("apps", "Deployment"), pod}, {pod, job}} {
		if workloadkind.MayControl(pair[0], pair[1]) {
			t.Errorf("%s controls %s", pair[0], pair[1])
		}
	}
}

func TestIsStoppable(t *testing.T) {
	for _, kind := range []schema.GroupKind{
		groupKind("", "Node"), groupKind("", "Namespace"), groupKind("", "PersistentVolumeClaim"), groupKind("apps", "DaemonSet"),
		groupKind("apps", "ControllerRevision"), groupKind("sluice.dev", "Project"), groupKind("", "ResourceQuota"),
		groupKind("policy", "PodDisruptionBudget"), groupKind("discovery.k8s.io", "EndpointSlice"), groupKind("kueue.x-k8s.io", "LocalQueue"),
		{},
	} {
		if workloadkind.IsStoppable(kind) {
			t.Errorf("%s can be stopped", kind)
		}
	}
	for _, kind := range workloadkind.All() {
		if workloadkind.IsStoppable(kind.GroupKind) != (kind.StopAction.Method != workloadkind.StopNever) {
			t.Errorf("%s", kind.GroupKind)
		}
	}
	if !workloadkind.IsStoppable(groupKind("example.org", "Experiment")) {
		t.Error("an unknown kind counts as one that can be stopped")
	}
}

// Each row of the table has the fields on which other packages rely.
func TestKindTableIsComplete(t *testing.T) {
	found := map[schema.GroupKind]bool{}
	for _, kind := range workloadkind.All() {
		if found[kind.GroupKind] {
			t.Errorf("%s is there twice", kind.GroupKind)
		}
		found[kind.GroupKind] = true
		if kind.Resource == "" || kind.Resource != strings.ToLower(kind.Resource) {
			t.Errorf("%s has the resource %q", kind.GroupKind, kind.Resource)
		}
		needsPath := kind.StopAction.Method == workloadkind.StopByField || kind.StopAction.Method == workloadkind.StopByAnnotation || kind.StopAction.Method == workloadkind.StopByScaling
		if needsPath != (len(kind.StopAction.Path) > 0) {
			t.Errorf("%s: form %s with the path %v", kind.GroupKind, kind.StopAction.Method, kind.StopAction.Path)
		}
		if (kind.StopAction.Method == workloadkind.StopByField) != (kind.StopAction.StopValue != nil) {
			t.Errorf("%s: form %s with the value %v", kind.GroupKind, kind.StopAction.Method, kind.StopAction.StopValue)
		}
		if got := kind.StartCommand("ns", "x", 1); (got == "") != (kind.StopAction.Irreversible || kind.StopAction.Method == workloadkind.StopNever) {
			t.Errorf("%s: started by %q", kind.GroupKind, got)
		}
	}
}
