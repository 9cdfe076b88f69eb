// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"gotest.tools/v3/golden"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
)

const presetFile = `
metadata: {name: jupyter, namespace: sluice-system}
spec:
  type: Environment
  environment:
    image: quay.io/jupyter/base-notebook
    localImage: true
    workloadType: interactive
    command: [start-notebook.sh]
    args: [--ip=0.0.0.0]
    env: [{name: A, value: "1"}, {name: B, value: "2"}]
    ports: [{port: 8888}]
---
metadata: {name: torch, namespace: sluice-system}
spec:
  type: Environment
  environment: {image: pytorch, env: [{name: B, value: other-secret}], ports: [{port: 8888, targetPort: 80}], workingDir: /work}
---
metadata: {name: small, namespace: sluice-system}
spec:
  type: Compute
  compute: {gpu: 500m, cpu: 4, memory: 16Gi, largeShm: true, nodePools: [dgx-mig, dgx]}
---
metadata: {name: slice, namespace: sluice-system}
spec:
  type: Compute
  compute: {migProfile: 3g.40gb, cpu: 4}
---
metadata: {name: data, namespace: sluice-system}
spec:
  type: DataSource
  dataSource:
    volumes:
    - {path: /data, readOnly: true, persistentVolumeClaim: {claimName: course}}
    - {path: "/n,readwrite", readOnly: true, nfs: {server: nas, path: "/exports,readwrite"}}
    - {path: /keys, secret: {name: keys}}
---
metadata: {name: scratch, namespace: sluice-system}
spec:
  type: DataSource
  dataSource: {volumes: [{path: /data/, persistentVolumeClaim: {claimName: scratch}}, {path: /c, configMap: {name: c, file: a.yaml}}]}
---
metadata: {name: code, namespace: sluice-system}
spec:
  type: DataSource
  dataSource:
    volumes:
    - {path: /code, git: {source: "https://git.example.org/model.git", branch: v1.2, secret: git-access}}
    - {path: /images, s3: {bucket: course-data, key: images/2026, url: "https://s3.example.org", region: eu-central-1, secret: s3-access}}
---
metadata: {name: code-of-another, namespace: thesis}
spec:
  type: DataSource
  dataSource: {volumes: [{path: /code/, git: {source: "https://git.example.org/model.git", branch: v1.2, secret: other-access}}]}
---
metadata: {name: course, namespace: thesis}
spec:
  type: Template
  presets: [jupyter, small, data]
  environment: {image: course-notebook, env: [{name: B, value: "3"}]}
  workload: {maxRuntime: 8h, preemptible: true}
---
metadata: {name: clash, namespace: thesis}
spec: {type: Template, presets: [small, slice], workload: {parallelism: 2, completions: 4}}
---
metadata: {name: solved, namespace: thesis}
spec: {type: Template, presets: [small, slice], compute: {gpu: 2}}
---
metadata: {name: nested, namespace: thesis}
spec: {type: Template, presets: [course, gone]}
---
metadata: {name: torch, namespace: thesis}
spec: {type: Environment, environment: {image: thesis-torch}}
---
metadata: {name: foreign, namespace: other}
spec: {type: Environment, environment: {image: foreign}}
`

// readPresets returns the presets of the tests, as those of the namespace thesis.
func readPresets(t testing.TB) *submission.Presets {
	t.Helper()
	presets := &submission.Presets{Namespace: "thesis"}
	for document := range strings.SplitSeq(presetFile, "---\n") {
		var preset v1alpha1.Preset
		if err := yaml.UnmarshalStrict([]byte(document), &preset); err != nil {
			t.Fatal(err)
		}
		presets.All = append(presets.All, preset)
	}
	return presets
}

// parseWith reads a command line with presets.
func parseWith(presets *submission.Presets, line string) (*submission.Request, error) {
	set := pflag.NewFlagSet("submit", pflag.ContinueOnError)
	flags := submission.AddFlags(set)
	if err := set.Parse(submission.Prepare(strings.Fields(line))); err != nil {
		return nil, err
	}
	return flags.Request(set.Args(), set.ArgsLenAtDash(), presets)
}

// renderWith returns the objects of a command line with the presets of the tests.
func renderWith(presets *submission.Presets, line string) (string, error) {
	request, err := parseWith(presets, line)
	if err != nil {
		return "", err
	}
	return renderRequest(request)
}

// A submission with presets makes the objects of one with flags.
func TestPresetsStandForFlags(t *testing.T) {
	presets := readPresets(t)
	const notebook = "quay.io/jupyter/base-notebook --local-image --interactive --port 8888 -e A=1 -e B=2 --command start-notebook.sh --args --ip=0.0.0.0"
	const small = "--cpu 4 --memory 16Gi --large-shm --node-pools dgx-mig,dgx"
	const git = "--git-sync source=https://git.example.org/model.git,branch=v1.2,secret=git-access,target=/code"
	const s3 = "--s3 bucket=course-data,key=images/2026,url=https://s3.example.org,region=eu-central-1,secret=s3-access,target=/images"
	const mine = "bucket=mine,url=https://s3.example.org,target=/code/"
	for line, same := range map[string]string{
		"n --preset jupyter":                                        "n -i " + notebook,
		"n --preset jupyter,jupyter":                                "n -i " + notebook,
		"n --preset jupyter --preset small --preset slice -g 0.25 ": "n -g 0.25 -i " + notebook + " " + small,
		"n --preset torch":                                          "n -i thesis-torch", // the namespace's wins over that of all projects
		"n --preset slice -i a":                                     "n -i a --mig-profile 3g.40gb --cpu 4",
		"n --preset slice -i a -g 1":                                "n -i a -g 1 --cpu 4",
		"n --preset small -i a --gpu-memory 8G":                     "n -i a --gpu-memory 8G " + small,
		// The user's flags win: a switch that is off, an element of a list, a command with its arguments, an image with its place.
		"n --preset small -i a --large-shm=false":                "n -i a -g 0.5 --cpu 4 --memory 16Gi --node-pools dgx-mig,dgx",
		"n --preset jupyter -e B=mine -e C=3":                    "n -i quay.io/jupyter/base-notebook --local-image --interactive --port 8888 -e A=1 -e B=mine -e C=3 --command start-notebook.sh --args --ip=0.0.0.0",
		"n --preset jupyter --train --port 8888:80":              "n --train --port 8888:80 -i quay.io/jupyter/base-notebook --local-image -e A=1 -e B=2 --command start-notebook.sh --args --ip=0.0.0.0",
		"n --preset jupyter -i mine":                             "n -i mine --interactive --port 8888 -e A=1 -e B=2 --command start-notebook.sh --args --ip=0.0.0.0",
		"n --preset jupyter --command -- sleep 5":                "n -i quay.io/jupyter/base-notebook --local-image --interactive --port 8888 -e A=1 -e B=2 --command -- sleep 5",
		"n --preset jupyter -- --ip=::":                          "n -i quay.io/jupyter/base-notebook --local-image --interactive --port 8888 -e A=1 -e B=2 --command start-notebook.sh --args --ip=::",
		"n --preset solved -i a":                                 "n -i a -g 2 " + small,
		"n --preset clash -i a -g 1":                             "n -i a -g 1 --parallelism 2 --completions 4 " + small,
		"n --preset small,slice -i a --mig-profile 1g.10gb":      "n -i a --mig-profile 1g.10gb " + small,
		"n --preset code -i a":                                   "n -i a " + git + " " + s3,
		"n --preset code,code -i a --s3 " + mine:                 "n -i a " + s3 + " --s3 " + mine,
		"n --preset code,code-of-another -i a --s3 " + mine:      "n -i a " + s3 + " --s3 " + mine,
		"n --preset jupyter,torch -i a -e B=1 --port 8888 -e A=": "n -i a --interactive --port 8888 -e B=1 -e A= --command start-notebook.sh --args --ip=0.0.0.0",
	} {
		t.Run(line, func(t *testing.T) {
			got, err := renderWith(presets, line)
			want, wantErr := renderWith(presets, same)
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("differs from submit %s (-want +got)\n%s", same, diff)
			}
		})
	}
}

// A template and what it names, with all kinds of volumes. The values of a preset are no flags: a comma in a path is one.
func TestPresetGoldens(t *testing.T) {
	for name, line := range map[string]string{
		"preset-template": "n --preset course",
		"preset-volumes":  "n --preset data -i a --pvc mine:/data --pvc my:/k",
	} {
		got, err := renderWith(readPresets(t), line)
		if err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, "# sluice submit "+line+"\n"+got, name+".yaml")
	}
}

// Without a name, the workload is named after the preset's image.
func TestNameOfPresetImage(t *testing.T) {
	got, err := renderWith(readPresets(t), "--preset jupyter")
	if err != nil || !strings.Contains(got, "name: base-notebook-") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestRefusedPresets(t *testing.T) {
	for line, want := range map[string][]string{
		"n --preset jupiter": {`--preset "jupiter": there is no preset of this name in namespace thesis or sluice-system; there are: clash, code, code-of-another, course, data, jupyter, nested, scratch, slice, small, solved, torch`},
		"n --preset foreign": {`--preset "foreign": there is no preset`},
		"n --preset nested": {
			"preset nested names preset course, which is a Template; a Template consists of presets of the other types",
			`preset nested names preset "gone": there is no preset of this name`,
		},
		"n -i a --preset clash":                {"--gpu, --gpu-memory or --mig-profile: presets small and slice set it to different values; use one of them, or set it yourself"},
		"n -i a --preset small,slice":          {"--gpu, --gpu-memory or --mig-profile: presets small and slice"},
		"n --preset course,torch -e B=1":       {"--image: presets course and torch set it to different values"},
		"n -i a --preset data,scratch":         {"a volume at /data: presets data and scratch set it to different values"},
		"n -i a --preset code,code-of-another": {"a volume at /code: presets code and code-of-another set it to different values"}, // of two Secrets
		"n --preset small":                     {`--image "": give an image such as python:3.12`},
		"n -i a --preset data --pvc a:/keys/":  nil,
		"n --preset \x00":                      {`--preset "\x00": there is no preset`},
	} {
		got, err := renderWith(readPresets(t), line)
		if (err == nil) != (want == nil) {
			t.Errorf("submit %s: %v\n%s", line, err, got)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("submit %s: %v\nwant %s", line, err, part)
			}
		}
	}
	// No message has the values of variables.
	presets := readPresets(t)
	presets.Namespace = "other"
	if _, err := renderWith(presets, "n --preset jupyter --preset torch -i a"); err == nil || !strings.Contains(err.Error(), "--environment B: presets jupyter and torch") ||
		!strings.Contains(err.Error(), "--port 8888: presets jupyter and torch") || strings.Contains(err.Error(), "other-secret") {
		t.Errorf("conflicts: %v", err)
	}
	var none *submission.Presets
	if _, err := renderWith(none, "n -i a"); err != nil {
		t.Error(err)
	}
	if _, err := renderWith(new(submission.Presets), "n --preset a"); err == nil || !strings.Contains(err.Error(), "and no other; sluice preset create makes one") {
		t.Error(err)
	}
}

// A preset made of flags stands for these flags.
func TestPresetOfFlags(t *testing.T) {
	for presetType, lines := range map[v1alpha1.PresetType][]string{
		v1alpha1.PresetEnvironment: {"-i a --interactive --port 80:8888 --port 9000 --service-type nodeport -e A=1 -e B= --command sleep --args 1 --working-dir /a --local-image", "-i b -- --fast"},
		v1alpha1.PresetDataSource: {"--pvc a:/a:ro --nfs server=n,path=/x,mount=/n,readwrite --nfs server=n,path=/x,mount=/m --secret-file name=s,mount=/s " +
			"--configmap-file name=c,file=f,mount=/c/f --host-path path=/h,mount=/h -v /v:/v", "--git-sync source=https://git.example.org/a,target=/a " +
			"--git-sync source=git@git.example.org:a,rev=0123456789abcdef0123456789abcdef01234567,secret=s,target=/b --git-sync source=http://git.example.org/a,branch=b,target=/c " +
			"--s3 bucket=abc,url=http://s3:9000,target=/d --s3 bucket=abc,key=a=b,url=https://s3.example.org,region=r,secret=s,target=/e"},
		v1alpha1.PresetCompute:  {"-g 0.125 --cpu 500m --memory 1Gi --large-shm --node-pools b,a", "--gpu-memory 8G", "--mig-profile 1g.10gb", "-g 0"},
		v1alpha1.PresetTemplate: {"-i a -g 2 --pvc a:/a --max-runtime 6h --parallelism 2 --completions 3", "--interactive --preemptible -i a"},
	} {
		for _, line := range lines {
			set := pflag.NewFlagSet("create", pflag.ContinueOnError)
			flags := submission.AddFlags(set)
			if err := set.Parse(strings.Fields("made " + line)); err != nil {
				t.Fatal(err)
			}
			preset, err := flags.Preset(set.Args(), set.ArgsLenAtDash(), presetType)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			preset.Namespace = "thesis"
			image := ""
			if !strings.Contains(line, "-i ") {
				image = " -i a"
			}
			got, err := renderWith(&submission.Presets{Namespace: "thesis", All: []v1alpha1.Preset{*preset}}, "n --preset made"+image)
			want, wantErr := renderWith(nil, "n "+line+image)
			if strings.Contains(line, " -- ") {
				want, wantErr = renderWith(nil, "n"+image+" "+line)
			}
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", line, diff)
			}
		}
	}
}

func TestRefusedPresetFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                                    "NAME: give the preset a name",
		"-- a":                                "NAME: give the preset a name",
		"a":                                   "preset a has no field: give it one, such as --image",
		"a -i a -g 1":                         "--gpu: is for presets of the type Compute or Template; the type is Environment",
		"a -i a --pvc a:/a":                   "--pvc: is for presets of the type DataSource or Template; the type is Environment",
		"a -i a --max-runtime 1h":             "--max-runtime: is for presets of the type Template; the type is Environment",
		"a -i a --preset b":                   "--preset: is for presets of the type Template",
		"a --pytorch workers=2":               "--pytorch: no field of a preset; give it to sluice submit",
		"a --new-pvc name=a,path=/b,size=1Gi": "--new-pvc: a preset names volume claims that exist, and creates none",
		"a --s3 bucket=abc,url=http://s3,target=/a": "--s3: is for presets of the type DataSource or Template; the type is Environment",
		"a --git-sync source=-a,target=/a":          "source: want a repository such as",
		"a b -i a":                                  `arguments ["b"]: give one name`,
		"a --port 0":                                `--port "0": want a port`,
	} {
		set := pflag.NewFlagSet("create", pflag.ContinueOnError)
		flags := submission.AddFlags(set)
		if err := set.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		preset, err := flags.Preset(set.Args(), set.ArgsLenAtDash(), v1alpha1.PresetEnvironment)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", line, preset, err, want)
		}
	}
}

// drawPresets returns presets of random fields, with few values, so that they often contradict each other.
func drawPresets(t *rapid.T) *submission.Presets {
	word := rapid.SampledFrom([]string{"", "a", "b", "a b", "ü\x1b", "x,y=z"})
	names := []string{"p0", "p1", "p2", "p3"}
	presets := &submission.Presets{Namespace: "thesis"}
	for _, name := range names {
		for _, namespace := range rapid.SampledFrom([][]string{{"thesis"}, {"sluice-system"}, {"thesis", "sluice-system"}}).Draw(t, "where") {
			preset := v1alpha1.Preset{}
			preset.Name, preset.Namespace, preset.Spec.Type = name, namespace, v1alpha1.PresetTemplate
			e := &v1alpha1.EnvironmentPreset{Image: word.Draw(t, "image"), WorkingDir: word.Draw(t, "dir"), LocalImage: rapid.Bool().Draw(t, "local")}
			for _, v := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B"}), 0, 2, rapid.ID).Draw(t, "env") {
				e.Env = append(e.Env, v1alpha1.PresetVariable{Name: v, Value: word.Draw(t, "value")})
			}
			for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(1, 2), 0, 2, rapid.ID).Draw(t, "ports") {
				e.Ports = append(e.Ports, v1alpha1.PresetPort{Port: p, TargetPort: rapid.Int32Range(0, 2).Draw(t, "target")})
			}
			if args := word.Draw(t, "args"); args != "" {
				e.Args = []string{args}
			}
			if command := word.Draw(t, "command"); command != "" {
				e.Command = []string{command}
			}
			preset.Spec.Environment, preset.Spec.DataSource = e, drawFetches(t)
			if name != "p0" && rapid.Bool().Draw(t, "is no template") {
				preset.Spec.Type = v1alpha1.PresetEnvironment
			} else if rapid.Bool().Draw(t, "names others") {
				preset.Spec.Presets = []v1alpha1.PresetName{v1alpha1.PresetName(rapid.SampledFrom(names).Draw(t, "named"))}
			}
			presets.All = append(presets.All, preset)
		}
	}
	return presets
}

// drawFetches returns at most one repository at /code and one bucket at /data.
func drawFetches(t *rapid.T) *v1alpha1.DataSourcePreset {
	data := &v1alpha1.DataSourcePreset{}
	secret := rapid.SampledFrom([]string{"", "a", "b"})
	if source := rapid.SampledFrom([]string{"", "https://git.example.org/a", "https://git.example.org/b"}).Draw(t, "repository"); source != "" {
		git := &v1alpha1.PresetGit{Source: source, Branch: rapid.SampledFrom([]string{"", "main"}).Draw(t, "branch"), Secret: secret.Draw(t, "Git's Secret")}
		data.Volumes = append(data.Volumes, v1alpha1.PresetVolume{Path: rapid.SampledFrom([]string{"/code", "/code/"}).Draw(t, "path"), Git: git})
	}
	if key := rapid.SampledFrom([]string{"none", "", "a", "b=c"}).Draw(t, "key"); key != "none" {
		s3 := &v1alpha1.PresetS3{Bucket: "data", URL: "https://s3.example.org", Key: key, Secret: secret.Draw(t, "S3's Secret")}
		data.Volumes = append(data.Volumes, v1alpha1.PresetVolume{Path: "/data", S3: s3})
	}
	return data
}

// For all presets: their order decides nothing but the order of lists, naming one twice changes nothing, and what they set
// has one value; a user's flag has its value whatever the presets say; the objects have no field that no one set.
func TestPresetProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		presets := drawPresets(t)
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"p0", "p1", "p2", "p3", "gone"}), 0, 3).Draw(t, "names")
		texts := func(names []string) ([]string, error) {
			settings, err := presets.Settings(names)
			var texts []string
			for _, s := range settings {
				texts = append(texts, s.String())
			}
			slices.Sort(texts)
			return texts, err
		}
		got, err := texts(names)
		reversed := slices.Clone(names)
		slices.Reverse(reversed)
		for _, other := range [][]string{reversed, append(slices.Clone(names), names...)} {
			same, otherErr := texts(other)
			if (err == nil) != (otherErr == nil) || err == nil && cmp.Diff(got, same) != "" {
				t.Fatalf("%v: %v %v\n%v: %v %v", names, got, err, other, same, otherErr)
			}
		}
		if err != nil {
			return
		}
		if seen := map[string]bool{}; slices.ContainsFunc(got, func(text string) bool {
			flag, _, _ := strings.Cut(text, "=") // of a variable, its name
			flag = strings.Join(strings.Fields(flag)[:min(1, len(strings.Fields(flag)))], "")
			repeated := seen[flag] && flag != "--environment" && flag != "--port"
			seen[flag] = true
			return repeated
		}) {
			t.Fatalf("a field has two values: %q", got)
		}
		line := "n -i mine -e A=mine -e C=mine --port 2:9 --working-dir /mine --git-sync source=https://git.example.org/mine,target=/code"
		if len(names) > 0 {
			line += " --preset " + strings.Join(names, " --preset ")
		}
		text, err := renderWith(presets, line)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"image: mine\n", "- name: A\n          value: mine\n", "- name: C\n          value: mine\n", "workingDir: /mine\n", "targetPort: 9\n", "- https://git.example.org/mine\n"} {
			if strings.Count(text, want) != 1 {
				t.Fatalf("%s: %d times %q\n%s", line, strings.Count(text, want), want, text)
			}
		}
		if strings.Contains(text, "imagePullPolicy") {
			t.Fatalf("%s: the preset's place of another image\n%s", line, text)
		}
	})
}

// Files of any bytes are presets or an error, and what they are makes objects or an error.
func FuzzPresetFile(f *testing.F) {
	const head = "apiVersion: sluice.dev/v1alpha1\nkind: Preset\nmetadata: {name: a}\n"
	f.Add(head + "spec: {type: Environment, environment: {image: a}}\n---\n# nothing\n---\n" + head + "spec: {type: Template, presets: [a]}")
	f.Add(head + "spec: {type: Compute, compute: {gpu: -1e400}}")
	f.Add(head + "spec: {type: DataSource, dataSource: {volumes: [{}, {path: ../..}]}}")
	f.Add(head + "spec: {type: DataSource, dataSource: {volumes: [{path: /a, git: {source: 'ssh://-oProxyCommand=id/a'}}, {path: /b, s3: {}}]}}")
	f.Add(head + "spec: {type: Environment, environment: {image: a}, environment: {image: b}}")
	f.Add("kind: List")
	f.Fuzz(func(t *testing.T, text string) {
		presets, err := submission.ParsePresets([]byte(text))
		if (err == nil) == (len(presets) == 0) {
			t.Fatalf("%v, %v", presets, err)
		}
		all := &submission.Presets{All: presets}
		for i := range presets {
			got, err := renderWith(all, "n -i a --preset "+presets[i].Name)
			if err == nil && got == "" {
				t.Error("neither objects nor an error")
			}
		}
	})
}

func TestRefusedPresetFiles(t *testing.T) {
	const head = "apiVersion: sluice.dev/v1alpha1\nkind: Preset\nmetadata: {name: a}\n"
	for file, want := range map[string]string{
		"":                                 "there is no Preset in it",
		"# nothing":                        "there is no Preset in it",
		"kind: Preset":                     `document 1: apiVersion "", kind "Preset", name "": want a Preset of sluice.dev/v1alpha1 with a name`,
		head + "spec: {types: a}":          `document 1: error unmarshaling JSON: while decoding JSON: json: unknown field "types"`,
		head + "---\nkind: Job":            "document 2: ",
		head + "metadata: {name: b}":       "document 1: ",
		head + "spec: {type: [a]}":         "document 1: ",
		head + "spec: {compute: {cpu: x}}": "document 1: ",
	} {
		if presets, err := submission.ParsePresets([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", file, presets, err, want)
		}
	}
}
