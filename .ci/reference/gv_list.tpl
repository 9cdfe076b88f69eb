{{- define "gvList" -}}
# API reference

After reading this page you can write every field of Sluice's objects: its type, default and
limits. `kubectl explain` shows the same texts in the terminal. This page is generated from
the Go types in `api/v1alpha1` by `make generate`.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
