module github.com/caisson-run/caisson

go 1.26.3
