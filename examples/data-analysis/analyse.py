#!/usr/bin/env python3
"""Seattle's weather by season: what an agent writes when it is handed a CSV file.

Only the standard library, so that it runs wherever there is a python3.
Usage: analyse.py [data.csv]
"""
import csv
import statistics
import sys

SEASONS = {12: "winter", 1: "winter", 2: "winter", 3: "spring", 4: "spring", 5: "spring",
           6: "summer", 7: "summer", 8: "summer", 9: "autumn", 10: "autumn", 11: "autumn"}


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "data.csv"
    with open(path, newline="") as f:
        days = list(csv.DictReader(f))
    by_season: dict[str, list[dict]] = {}
    for day in days:
        by_season.setdefault(SEASONS[int(day["date"][5:7])], []).append(day)

    print(f"Seattle: {len(days)} days, {days[0]['date']} to {days[-1]['date']}")
    print(f"{'season':<8} {'days':>5} {'mean °C':>8} {'rain mm':>9} {'wet days':>9} {'wind m/s':>9}")
    for season in ("winter", "spring", "summer", "autumn"):
        group = by_season[season]
        mean = statistics.fmean((float(d["temp_max"]) + float(d["temp_min"])) / 2 for d in group)
        rain = sum(float(d["precipitation"]) for d in group)
        wet = sum(float(d["precipitation"]) > 0 for d in group) / len(group)
        wind = statistics.fmean(float(d["wind"]) for d in group)
        print(f"{season:<8} {len(group):>5} {mean:>8.1f} {rain:>9.1f} {wet:>9.0%} {wind:>9.1f}")

    hot = max(days, key=lambda d: float(d["temp_max"]))
    wettest = max(days, key=lambda d: float(d["precipitation"]))
    print(f"hottest day {hot['date']} ({hot['temp_max']} °C), wettest day {wettest['date']} ({wettest['precipitation']} mm)")


if __name__ == "__main__":
    main()
