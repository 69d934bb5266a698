from rota import App

app = App()


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.submit_sync("world")
    print(job.result_sync(timeout=30))
